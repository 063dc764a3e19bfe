"""Squares of single samples' gradients from their two factors, where a network's layers are linear, convolutions or GroupNorm.

With a what a layer reads of a sample and δ the gradient of the sample's loss at what it gives, both [features, places], the
gradient of its weights is δaᵀ: one backward pass of a whole batch has all there is. Where a layer has one place, Σ_s g_s² = (δ²)ᵀa²
and ‖g_s‖² = ‖δ_s‖² ‖a_s‖² (Goodfellow 2015, Efficient per-example gradient computations); where it has several, as a convolution
has, δaᵀ is made of one layer and a few samples at a time, never of the whole network.

What counts is how a pass uses a parameter, not of which class its layer is: a pass is watched, and autograd says whether a
parameter acts otherwise than as weight or bias of a layer that was noted. Then its factors are `Unknown`, and each sample is
differentiated by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from covey import randomness
from covey.learn.examine import TRIED, example_inputs
from covey.learn.flat import Network, once
from covey.learn.initial import initial
from covey.learn.kernels.convolutions.convolutions import Pair, at_weights_of_many, pair
from covey.learn.kernels.stacked import vmap_fails
from covey.learn.losses import example_targets
from covey.learn.objective import Objective

# Floats of a layer's unfolded samples at a time; on a CPU a cache's worth.
ROOM = {"cpu": 1_000_000, "cuda": 128_000_000}
OFF = 0.02  # standard deviation of what a trial adds to a start: whole layers may begin with 0


class Unknown(Exception):
    """A pass uses a parameter in a way whose factors are not known."""


@dataclass(frozen=True)
class Factors:
    """δ and a of some samples: weights of group γ have the gradient δ_γ a_γᵀ, biases that of δ summed over places."""

    delta: Tensor  # [b, groups, o, places]
    read: Tensor  # [b, groups, i, places]

    def sums(self) -> tuple[Tensor, Tensor]:
        """Squared gradients summed over samples, of weights [groups, o, i] and biases [groups, o]."""
        if self.delta.shape[-1] == 1:
            delta, read = (part.squeeze(-1).square().transpose(0, 1) for part in (self.delta, self.read))
            return delta.mT @ read, delta.sum(1)
        return self.gradients().square_().sum(0), self.delta.sum(-1).square_().sum(0)

    def norms(self) -> tuple[Tensor, Tensor]:
        """Squared norm of each sample's gradient, of weights [b] and biases [b]."""
        biases = self.delta.sum(-1).square_().sum((1, 2))
        if self.delta.shape[-1] == 1:
            delta, read = (part.square().sum((2, 3)) for part in (self.delta, self.read))  # [b, groups]
            return (delta * read).sum(1), biases
        return self.gradients().square_().sum((1, 2, 3)), biases

    def by_client(self, clients: int, biased: bool) -> tuple[Tensor, Tensor | None]:
        """Gradients of weights [c, ...] and, where there are any, of biases, summed over each client's samples."""
        delta, read = (part.view(clients, -1, *part.shape[1:]) for part in (self.delta, self.read))
        biases = delta.sum((1, 4)) if biased else None
        if delta.shape[2] == delta.shape[4] == 1:
            return delta[:, :, 0, :, 0].mT @ read[:, :, 0, :, 0], biases
        return self.gradients().reshape(clients, delta.shape[1], -1).sum(1), biases

    def alone(self) -> Alone:
        """Each sample's own."""
        if self.delta.shape[1] == self.delta.shape[-1] == 1:
            return Alone(None, self.read.flatten(1), self.delta.flatten(1))
        return Alone(self.gradients().flatten(1), None, self.delta.sum(-1).flatten(1))

    def gradients(self) -> Tensor:
        """Of weights, each sample's own [b, groups, o, i]."""
        if self.delta.shape[2] == self.read.shape[2] == 1:  # a product of matrices costs more than its few numbers
            return (self.delta * self.read).sum(-1, keepdim=True)
        return self.delta @ self.read.mT


@dataclass(frozen=True)
class Alone:
    """Gradients of a layer's samples: of weights [b, o · i], or where one place makes them [b, o] and [b, i]; of biases [b, o]."""

    weights: Tensor | None
    read: Tensor | None  # where there are no weights: their gradient is biases · readᵀ
    biases: Tensor

    def lengths(self, biased: bool) -> list[Tensor]:
        """Norms [b] whose squares add up to those of the gradients."""
        of_biases = torch.linalg.vector_norm(self.biases, dim=1)
        if self.weights is not None:
            of_weights = torch.linalg.vector_norm(self.weights, dim=1)
        else:
            assert self.read is not None
            of_weights = of_biases * torch.linalg.vector_norm(self.read, dim=1)
        return [of_weights, of_biases] if biased else [of_weights]

    def summed(self, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Of weights and biases [c, 1, ...], times shares [c, b] and summed over the samples of each client."""
        biases = self.biases.view(*shares.shape, -1)
        if self.weights is not None:
            shares = shares[:, None]
            return torch.bmm(shares, self.weights.view(*biases.shape[:2], -1)), torch.bmm(shares, biases)
        assert self.read is not None
        biases = biases * shares[..., None]
        return torch.bmm(biases.mT, self.read.view(*shares.shape, -1)), biases.sum(1, keepdim=True)


@dataclass(frozen=True)
class Use:
    """A layer as one pass used it: with `delta` [b, ...] at what it gave, its samples have factors."""

    weight: Tensor
    bias: Tensor | None  # None: none that is trained
    read: Tensor  # [b, ...]
    unfolded: Callable[[Tensor], Tensor]  # of some samples that it read: a [b, groups, i, places]
    grouped: Callable[[Tensor], Tensor]  # of as many of delta: δ [b, groups, o, places]
    given: GradientEdge
    # (delta [c, b, ...], read [c, b, ...]) -> gradients of weights and biases [c, ...], where a kernel does it without factors
    weighed: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def factors(self, delta: Tensor) -> Iterator[Factors]:
        """Of a few samples at a time."""
        whole = self.grouped(delta)
        _, groups, o, places = whole.shape
        i = self.weight.numel() // (groups * o)
        room = ROOM.get(delta.device.type, ROOM["cpu"])
        width = len(delta) if places == 1 else max(1, room // (groups * i * (places + o)))
        if width >= len(delta):
            yield Factors(whole, self.unfolded(self.read))
            return
        for some, read in zip(torch.split(whole, width), torch.split(self.read, width)):
            yield Factors(some, self.unfolded(read))

    def gradients(self, delta: Tensor, clients: int) -> tuple[Tensor, Tensor | None]:
        """Of weights [c, groups · o · i] and biases [c, groups · o], summed over the samples of each client, which are equally many
        and come client by client.
        """
        if self.weighed is not None:
            return self.weighed(*(part.view(clients, -1, *part.shape[1:]) for part in (delta, self.read)))
        low, weights, biases = 0, list[Tensor](), list[Tensor]()
        for factors in self.factors(delta):
            if len(factors.delta) == len(delta):
                return factors.by_client(clients, self.bias is not None)
            whose = torch.arange(low, low + len(factors.delta), device=delta.device) // (len(delta) // clients)
            mine = (whose == torch.arange(clients, device=delta.device)[:, None]).to(delta.dtype)  # [c, some samples]
            weights.append(mine @ factors.gradients().flatten(1))
            biases.append(mine @ factors.delta.sum(-1).flatten(1))
            low += len(factors.delta)
        return torch.stack(weights).sum(0), torch.stack(biases).sum(0)


Layers = list[tuple[Use, Tensor]]  # with δ at what each gave


def layers_of(
    objective: Objective, trained: Sequence[Tensor], x: Tensor, *more: Tensor | None, shares: Tensor | None = None
) -> Layers:
    """The layers of a pass over a batch, with what an objective takes beside its samples; δ is of the samples' losses, or of these
    times their `shares` [b].
    """
    with Watch(trained) as watch:
        losses = objective(x, *more)
    total = losses.sum() if shares is None else torch.dot(losses, shares)
    uses = watch.uses
    counts = Counter(parameter for use in uses for parameter in (use.weight, use.bias) if parameter is not None)
    if not uses or max(counts.values()) > 1 or any(len(use.read) != len(x) for use in uses):
        raise Unknown
    found = torch.autograd.grad(total, [*(use.given for use in uses), *trained], allow_unused=True)
    if any(elsewhere is not None for elsewhere in found[len(uses) :]):
        raise Unknown
    layers = [(use, delta) for use, delta in zip(uses, found) if delta is not None]
    if any(delta.dtype != use.weight.dtype for use, delta in layers):  # a module with an autocast of its own
        raise Unknown
    return layers


def add_squares(totals: Sequence[Tensor], trained: Sequence[Tensor], layers: Layers) -> None:
    """To the total of each trained parameter the sum over samples of its squared gradient."""
    total_of = dict(zip(trained, totals))
    for use, delta in layers:
        for factors in use.factors(delta):
            for parameter, squares in zip((use.weight, use.bias), factors.sums()):
                if parameter is not None:
                    total_of[parameter] += squares.view_as(parameter)


def norms(layers: Layers) -> Tensor:
    """Of each sample's gradient [b]."""
    squares = []
    for use, delta in layers:
        weights, biases = zip(*(factors.norms() for factors in use.factors(delta)))
        squares += [torch.cat(weights)] if use.bias is None else [torch.cat(weights), torch.cat(biases)]
    return torch.stack(squares).sum(0).sqrt_()


def means(layers: Layers, shares: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(parameter, its gradients [c, ...]) of c clients with b samples each, which come client by client: the sums of their samples'
    gradients times `shares` [c, b].
    """
    each = shares.reshape(-1)
    scaled = ((use, delta * each.view(-1, *(1 for _ in delta.shape[1:]))) for use, delta in layers)
    return sums(scaled, len(shares))


def sums(layers: Iterable[tuple[Use, Tensor]], clients: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same of δ that has the shares already."""
    for use, delta in layers:
        for parameter, gradient in zip((use.weight, use.bias), use.gradients(delta, clients)):
            if parameter is not None and gradient is not None:
                yield parameter, gradient.view(clients, *parameter.shape)


def bounded(layers: Layers, shared: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """As `means`, where the shares [c, b] hang on the samples' norms [b]. What these are of is kept for the sums, where there is
    room for it.
    """
    alone = []
    for use, delta in layers:
        some = next(use.factors(delta))
        if len(some.delta) < len(delta):
            yield from means(layers, shared(norms(layers)))
            return
        alone.append((use, some.alone()))
    lengths = [length for use, one in alone for length in one.lengths(use.bias is not None)]
    shares = shared(torch.linalg.vector_norm(torch.stack(lengths), dim=0))
    for use, one in alone:
        for parameter, gradient in zip((use.weight, use.bias), one.summed(shares)):
            if parameter is not None:
                yield parameter, gradient.view(len(shares), *parameter.shape)


class Watch(TorchFunctionMode):
    """Notes the layers that a pass goes through, and hides their parameters from autograd: what it still sees acts elsewhere."""

    def __init__(self, trained: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trained = set(trained)
        self._known = {F.linear: self._linear, F.conv2d: self._convolution, F.group_norm: self._group_norm}
        self.uses: list[Use] = []

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        return self._known.get(function, function)(*given, **(named or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight not in self._trained or input.dim() < 2 or weight.dim() != 2:  # one output may have no dimension
            return F.linear(input, weight, bias)
        return self._noted(F.linear, input, weight, bias, _places, _places)

    def _convolution(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Pair = 1,
        padding: str | int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
    ) -> Tensor:
        convolved = partial(F.conv2d, stride=stride, padding=padding, dilation=dilation, groups=groups)
        if weight not in self._trained or input.dim() != 4 or isinstance(padding, str):
            return convolved(input, weight, bias)
        size = (weight.shape[2], weight.shape[3])
        windows = partial(_windows, size=size, stride=pair(stride), padding=pair(padding), dilation=pair(dilation))
        grouped = partial(_grouped, groups=groups)
        plain = groups == 1 and pair(stride) == pair(dilation) == (1, 1)
        weighed = at_weights_of_many(input.device, size, pair(padding)) if plain else None
        return self._noted(convolved, input, weight, bias, lambda read: grouped(windows(read)), grouped, weighed)

    def _group_norm(
        self, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
    ) -> Tensor:
        if weight not in self._trained:
            return F.group_norm(input, num_groups, weight, bias, eps)
        channels = partial(_grouped, groups=len(weight))
        normed = F.group_norm(input, num_groups, None, None, eps)
        return self._noted(_scaled, normed, weight, bias, channels, channels)

    def _noted(
        self,
        layer: Callable[..., Tensor],
        read: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        unfolded: Callable[[Tensor], Tensor],
        grouped: Callable[[Tensor], Tensor],
        weighed: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        if not read.requires_grad:
            read = read.detach().requires_grad_()  # gives the layer a place in autograd's graph, without its parameters
        hidden = bias if bias in self._trained else None
        given = layer(read, weight.detach(), bias if hidden is None else hidden.detach())
        # Their place in the graph now: a ReLU in place makes them others.
        self.uses.append(Use(weight, hidden, read.detach(), unfolded, grouped, get_gradient_edge(given), weighed))
        return given


def _scaled(read: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    shape = (-1, *(1 for _ in read.shape[2:]))
    scaled = read * weight.view(shape)
    return scaled if bias is None else scaled + bias.view(shape)


def _places(rows: Tensor) -> Tensor:
    """[b, ..., features] as [b, 1, features, places]."""
    return rows.reshape(len(rows), 1, -1, rows.shape[-1]).mT


def _grouped(channels: Tensor, groups: int) -> Tensor:
    """[b, channels, ...] as [b, groups, features, places]."""
    return channels.reshape(len(channels), groups, channels.shape[1] // groups, -1)


def _windows(images: Tensor, size: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """What a convolution's weights meet, [b, channels · h · w, places]. As `F.unfold`, which goes image by image on a GPU and takes
    many times as long on a CPU.
    """
    padded = F.pad(images, (padding[1], padding[1], padding[0], padding[0])).contiguous()
    b, channels, *sides = padded.shape
    places = [
        (side - step * (reach - 1) - 1) // stride + 1
        for side, reach, stride, step in zip(sides, size, stride, dilation)
    ]
    one, channel, *along = padded.stride()
    steps = [step * by for step, by in zip(along, dilation)] + [step * by for step, by in zip(along, stride)]
    windows = padded.as_strided((b, channels, *size, *places), (one, channel, *steps))
    return windows.reshape(b, channels * size[0] * size[1], -1)


@once
def known(network: Network) -> bool:
    """Whether factors give the squares of its samples' gradients. A module may lay samples out as it likes, or let them act on each
    other: so a few are tried, together and one by one. One that decides by their values would need all of them tried.
    """
    if not network.plain and vmap_fails(network):
        return False
    objective = Objective(network, 0, 1.0, torch.device("cpu")).eval()
    start = initial(network, 1)
    network.write(start + OFF * randomness.normals([1], len(start))[0], objective.net)
    trained = [p for p in objective.parameters() if p.requires_grad]
    x, y = example_inputs(network, TRIED), example_targets(network.task, TRIED, network.classes)
    if network.kind == "tokens":
        x[1, 1:] = x[2, 2:] = 0  # padding: who sorts samples by their length, either way, moves them
    try:
        layers = layers_of(objective, trained, x, y)
    except Exception:  # `Unknown`; or a module that no such mode can watch
        return False
    totals = [torch.zeros_like(parameter) for parameter in trained]
    add_squares(totals, trained, layers)
    alone = torch.stack([gradient(objective, trained, x[i : i + 1], y[i : i + 1]) for i in range(TRIED)])
    lengths = torch.stack([one.double().norm() for one in alone]).float()
    squares, together = alone.square().sum(0), torch.cat([total.reshape(-1) for total in totals])
    alike = torch.allclose(together, squares, rtol=1e-2, atol=1e-5 * float(squares.max()))
    return alike and torch.allclose(norms(layers), lengths, rtol=1e-3)


def gradient(objective: Objective, trained: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Of the samples' summed loss, of all trained parameters one after another."""
    loss = objective(x, y).sum()
    parts = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
    return torch.cat([part.reshape(-1) for part in parts])
