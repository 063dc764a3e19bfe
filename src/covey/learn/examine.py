"""What a module is, found by looking at it and by trying it on a few samples: which tensors a client trains, which a training
pass changes, whether samples of a batch act on each other. What cannot be trained is refused here, with the layer's name.

A trial shows what three samples show: a module that behaves otherwise later (a buffer that changes from the hundredth step on)
is not foreseen; the loop kernel checks that no other buffer has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from covey.errors import CoveyError
from covey.learn.keyed import keyed, slot_keys
from covey.learn.losses import Loss, example_targets
from covey.models.own import first_line

if TYPE_CHECKING:
    from covey.learn.flat import Network

TRIED = 3  # samples
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Facts:
    """What a module is. The defaults are those of the networks that covey starts in closed form: nothing special."""

    running: tuple[str, ...] = ()  # buffers that training changes
    mixes: str = ""  # the layer (or "the model") in which samples of a batch act on each other; empty: none does
    dropping: bool = False  # draws dropout in training, from keys
    drawing: bool = False  # draws otherwise, from torch's generator
    last: str = ""  # the linear layer whose outputs are the module's outputs
    features: int = 0  # what it reads; 0: there is no such layer
    frozen: tuple[str, ...] = ()  # parameters that nobody trains
    constant: tuple[str, ...] = field(default=())  # buffers that training does not change


def examine(network: Network, module: nn.Module, loss: Loss) -> Facts:
    """Refuses a module that cannot be trained; of others what there is to know. The module is left changed."""
    what = f"model '{network.title}'"
    _check_tensors(what, module)
    x = example_inputs(network, TRIED)
    module.eval()
    _outputs(what, network, module, x)
    last = _last_layer(module, x)
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    module.train()
    with _seeded(1):
        trained = _trained_outputs(what, module, x)
    _check_gradient(what, network, module, trained, loss)
    now = dict(module.named_buffers())
    idle = _idle_counters(module)
    running = tuple(n for n, before in buffers.items() if not _equal(before, now[n]) and n not in idle)
    with torch.no_grad():
        again = [_draws(module, x, keys, seed) for keys, seed in ((0, 1), (1, 1), (0, 2))]
    dropping, drawing = not _close(again[0], again[1]), not _close(again[0], again[2])
    mixes = _mixing_layer(module, x)
    return Facts(
        running=running,
        mixes=mixes,
        dropping=dropping,
        drawing=drawing,
        last=last[0],
        features=last[1],
        frozen=tuple(n for n, p in module.named_parameters() if not p.requires_grad),
        constant=tuple(n for n in buffers if n not in running and n not in idle),
    )


def example_inputs(network: Network, count: int) -> Tensor:
    """Samples of the network's kind, the same every time."""
    generator = torch.Generator().manual_seed(1)
    shape = (count, *network.read_shape)
    if network.kind == "tokens":
        return torch.randint(1, max(2, network.vocabulary), shape, generator=generator)
    if network.kind == "binary":
        return torch.randint(0, 2, shape, generator=generator).float()
    return torch.rand(shape, generator=generator)


# ---------------------------------------------------------------- what is refused


def _check_tensors(what: str, module: nn.Module) -> None:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in tensors:
        if nn.parameter.is_lazy(tensor):
            raise CoveyError(
                f"{what}: layer '{_owner(name)}' is lazy and its size is not known: write its sizes out, or run one batch "
                "through it in the function that builds it"
            )
    parameters = list(module.named_parameters())
    if not parameters:
        raise CoveyError(
            f"{what} has no parameters: there is nothing to train; register layers as attributes of the module"
        )
    trained = [(name, p) for name, p in parameters if p.requires_grad]
    if not trained:
        raise CoveyError(
            f"{what}: all {len(parameters)} parameters are frozen (requires_grad=False): leave at least one layer to train"
        )
    for name, p in parameters:
        if p.is_complex() or not p.is_floating_point():
            raise CoveyError(
                f"{what}: parameter '{name}' is {_dtype(p)}, models are averaged as real numbers: "
                + ("split it into a real and an imaginary part" if p.is_complex() else "make it a buffer")
            )
        if p.requires_grad and p.dtype != torch.float32:
            raise CoveyError(
                f"{what}: parameter '{name}' is {_dtype(p)}, covey trains in float32: call .float() on the module"
            )
        if p.requires_grad and p.numel() == 0:
            raise CoveyError(
                f"{what}: parameter '{name}' has the shape {tuple(p.shape)}, so no numbers: check the layer's sizes"
            )
    for name, tensor in tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise CoveyError(
                f"{what}: '{name}' holds NaN or infinite values before training: check how it is initialised"
            )


def _outputs(what: str, network: Network, module: nn.Module, x: Tensor) -> Tensor:
    try:
        with torch.no_grad(), _located(module) as place:
            outputs: Any = module(x)
    except Exception as e:
        raise CoveyError(_failure(what, place[0], x, e)) from e
    wanted = f"expected one tensor [{len(x)}, {network.classes}] for {len(x)} samples"
    if not isinstance(outputs, Tensor):
        holds = f" of {len(outputs)}" if isinstance(outputs, list | tuple | dict) else ""
        raise CoveyError(
            f"{what} gives a {type(outputs).__name__}{holds}: {wanted}; return the outputs alone from forward"
        )
    if tuple(outputs.shape) != (len(x), network.classes):
        unit = {"classes": "classes", "labels": "labels"}.get(network.task, "numbers")
        raise CoveyError(
            f"{what} gives {list(outputs.shape)}, {wanted}: the data has {network.classes} {unit}, so its last layer must "
            f"give {network.classes} numbers for each sample"
        )
    if outputs.is_complex() or not outputs.is_floating_point():
        raise CoveyError(f"{what} gives {_dtype(outputs)} outputs: expected float32 scores, before any argmax")
    if not torch.isfinite(outputs).all():
        raise CoveyError(
            f"{what} gives NaN or infinite outputs before any training: check its divisions and logarithms"
        )
    return outputs


def _trained_outputs(what: str, module: nn.Module, x: Tensor) -> Tensor:
    try:
        with _located(module) as place:
            outputs: Tensor = module(x)
    except Exception as e:
        raise CoveyError(_failure(f"{what}, in training mode,", place[0], x, e)) from e
    return outputs


def _check_gradient(what: str, network: Network, module: nn.Module, outputs: Tensor, loss: Loss) -> None:
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not outputs.requires_grad:
        raise CoveyError(
            f"{what}: no gradient comes back from its outputs: forward must not detach them, nor run under no_grad"
        )
    losses = loss.each(outputs, example_targets(network.task, len(outputs), network.classes))
    try:
        gradients = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
    except RuntimeError as e:
        raise CoveyError(f"{what}: its gradient cannot be computed: {first_line(e)}") from e
    if all(g is None for g in gradients):
        raise CoveyError(f"{what}: no trained parameter has a part in its outputs: forward must use its layers")
    for name, g in zip(trained, gradients):
        if g is not None and not torch.isfinite(g).all():
            raise CoveyError(
                f"{what}: the gradient of '{name}' is not finite on ordinary samples: check divisions and roots"
            )


def _failure(what: str, place: str, x: Tensor, error: Exception) -> str:
    where = f"layer '{place}'" if place else "its forward"
    hint = ""
    if isinstance(error, IndexError) and not x.is_floating_point():
        hint = f": token ids run from 0 to {int(x.max())} and more, so an embedding must have `vocabulary` rows"
    return (
        f"{what} cannot read samples given as {_dtype(x)} {list(x.shape)}: {where} fails with "
        f"{type(error).__name__}: {first_line(error)}{hint}"
    )


# ---------------------------------------------------------------- what is found


def _last_layer(module: nn.Module, x: Tensor) -> tuple[str, int]:
    """(name, inputs) of the linear layer whose outputs are the module's; ("", 0) where there is none."""
    seen: dict[str, Tensor | None] = {}
    layers = {n: m for n, m in module.named_modules() if type(m) is nn.Linear and n}

    def note(name: str) -> Callable[..., None]:
        return lambda _, inputs, output: seen.__setitem__(name, output if inputs[0].dim() == 2 else None)

    hooks = [layer.register_forward_hook(note(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            outputs = module(x)
    finally:
        for hook in hooks:
            hook.remove()
    for name, output in seen.items():
        if output is outputs:
            return name, layers[name].in_features
    return "", 0


def _draws(module: nn.Module, x: Tensor, key: int, seed: int) -> Tensor:
    with _seeded(seed), keyed(slot_keys(torch.tensor([key]), len(x))[0]):
        outputs: Tensor = module(x)
    return outputs


def _mixing_layer(module: nn.Module, x: Tensor) -> str:
    """Whether the first sample's outputs change when others stand beside it."""
    for name, layer in module.named_modules():
        if isinstance(layer, BATCH_NORMS) and layer.training:
            return name or "the model"
    others = torch.cat([x[:1], x[:1].expand(len(x) - 1, *x.shape[1:])])
    with torch.no_grad():
        same = _close(_draws(module, x, 0, 1)[0], _draws(module, others, 0, 1)[0])
    return "" if same else "the model"


def _idle_counters(module: nn.Module) -> set[str]:
    """Batches that BatchNorm has counted: it computes with the number only where its momentum is None."""
    norms = [(name, m) for name, m in module.named_modules() if isinstance(m, BATCH_NORMS) and m.momentum is not None]
    return {f"{name}.num_batches_tracked" if name else "num_batches_tracked" for name, _ in norms}


def _owner(name: str) -> str:
    return name.rpartition(".")[0] or name


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a, b))


def _close(a: Tensor, b: Tensor) -> bool:
    return bool(torch.allclose(a, b, rtol=1e-4, atol=1e-5))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _located(module: nn.Module) -> Iterator[list[str]]:
    """The name of the innermost layer that was entered last and not left, in a list of one."""
    stack: list[str] = []
    place = [""]

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            stack.append(name)
            place[0] = name

        return hook

    def leave(*_: Any) -> None:
        stack.pop()
        place[0] = stack[-1] if stack else ""

    hooks = [
        h
        for n, m in module.named_modules()
        for h in (m.register_forward_pre_hook(enter(n)), m.register_forward_hook(leave))
    ]
    try:
        yield place
    finally:
        for hook in hooks:
            hook.remove()
