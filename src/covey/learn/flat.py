"""Networks as flat vectors: which slice of `[d]` is which tensor of the module.

In the vector stand the parameters that are trained, tied ones once. Frozen parameters and buffers that training leaves alone are
part of the network and of no vector: every party has the same, as the model's code (or a file that it reads) gives them.
Buffers that training changes, such as the running statistics of BatchNorm, stand beside their layer's parameters and are
averaged with them (`buffers = "shared"`); or a client keeps its own (`"local"`): then they follow the `d` numbers that
algorithms see, in a tail of `[size]` that never leaves the client.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from covey import randomness
from covey.errors import CoveyError, meant
from covey.learn.examine import Facts, examine
from covey.learn.losses import Loss, loss_of
from covey.models.choice import Model, fingerprint, spec
from covey.models.classifier import Classifier
from covey.models.spec import VOCABULARY
from covey.names import OURS

if TYPE_CHECKING:
    from covey.data.dataset import Dataset

T = TypeVar("T")
BUFFERS = ("shared", "local")
DRAWN = (nn.Linear, nn.Conv2d, nn.Embedding, nn.GroupNorm)  # layers whose starts covey draws itself: see `initial`
KNOWN = (OURS, "torch")  # packages whose layers do what their names say
# Layers that train otherwise than they predict, or draw.
OTHERWISE = (_DropoutNd, _BatchNorm, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
TEMPLATE = randomness.key("template")  # draws what is frozen: one value for all parties, clusters and seeds


@dataclass(frozen=True)
class Network:
    """A network for one kind of samples. Equal fields mean an equal layout of the flat vector."""

    name: Model
    input_shape: tuple[int, ...]  # of a sample as the dataset holds it: (h, w), (h, w, c), (features,) or (tokens,)
    classes: int  # numbers that it gives for a sample: one per class, per label, or per number to predict
    kind: str = "image"  # as in Dataset.kind
    vocabulary: int = VOCABULARY  # tokens only: ids run from 0 (padding) to vocabulary - 1
    task: str = "classes"  # as in Dataset.task
    loss_name: str = ""  # as in training.loss; empty: the task's own
    buffers: str = "shared"  # those that training changes: in the vector and averaged, or each client's own

    def __post_init__(self) -> None:
        check_buffers(self.buffers)

    @classmethod
    def of(cls, model: Model, dataset: Dataset, loss: str = "", buffers: str = "shared") -> Network:
        """The network of this model for a dataset."""
        vocabulary = VOCABULARY
        if dataset.kind == "tokens":
            vocabulary = int(max(dataset.x_train.max(), dataset.x_test.max())) + 1  # type: ignore[operator]
        shape = tuple(dataset.x_train.shape[1:])
        return cls(model, shape, dataset.outputs, dataset.kind, vocabulary, dataset.task, loss, buffers)

    @cached_property
    def spec(self) -> Any:
        return spec(self.name)

    @property
    def title(self) -> str:
        return str(self.name)

    @cached_property
    def loss(self) -> Loss:
        return loss_of(self.loss_name, self.task, self.classes)

    @cached_property
    def read_shape(self) -> tuple[int, ...]:
        """Of a sample as the first layer reads it."""
        shape: tuple[int, ...] = self.spec.read_shape(self.input_shape, self.kind)
        return shape

    # ------------------------------------------------------------ modules

    def module(self, device: str | torch.device = "cpu") -> Any:
        """A module to `write` a vector into. What no vector holds has its values; building it leaves torch's generator alone."""
        if not self.plain:
            return self._copy().to(device)
        return with_zeros(copy.deepcopy(self.architecture), device)

    @cached_property
    def architecture(self) -> Any:
        """A module to look at, never to compute with: it may have no values."""
        if getattr(self.spec, "layout", "") == "own" or hasattr(self.spec, "given"):
            return self._template
        module = _outline(self.spec, self.input_shape, self.classes, self.kind, self.vocabulary)
        return module if _closed_form(module) else self._template

    @property
    def plain(self) -> bool:
        """Whether its vector is all there is to it, and covey draws the start itself."""
        return self.architecture is not self.__dict__.get("_template")

    def drawn(self, key: int) -> nn.Module:
        """The module as its own code starts it, with torch's generator set to this key."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key)
            return self._built()

    def _built(self) -> nn.Module:
        module: nn.Module = self.spec.build(self.input_shape, self.classes, self.kind, self.vocabulary)
        return module

    @cached_property
    def _template(self) -> nn.Module:
        module = self.drawn(TEMPLATE)
        if not getattr(self.spec, "given", False):
            other = dict(self.drawn(TEMPLATE).named_parameters())
            for name, p in module.named_parameters():
                lazy = nn.parameter.is_lazy(p)
                if name not in other or not (lazy or torch.equal(p, other[name]) or p.isnan().any()):
                    raise CoveyError(
                        f"model '{self.title}': parameter '{name}' begins otherwise each time the model is built: draw it with "
                        "torch's generator only, which covey seeds, so that runs can be repeated and parties agree"
                    )
        return module

    def _copy(self) -> nn.Module:
        try:
            return copy.deepcopy(self._template)
        except Exception:  # a module that cannot be copied is built again: its values are the same
            return self.drawn(TEMPLATE)

    @cached_property
    def facts(self) -> Facts:
        if self.plain:
            return Facts(last="last", features=self.architecture.last.in_features)
        return examine(self, self._copy(), self.loss)

    @property
    def fingerprint(self) -> str:
        """Of all that parties must have alike beside the vector: its layout, and the values of what no vector holds."""
        text = f"{list(self.shapes.items())}{list(self.local.items())}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        held = frozenset(self.facts.frozen + self.facts.constant)
        return f"{digest}-{fingerprint(self.architecture, held)}" if held else digest

    def check_fingerprint(self, stored: str, what: str) -> None:
        """Refuses to go on with numbers that another network wrote; `what` they belong to. Nothing stored: nothing is known."""
        own = self.fingerprint
        if not stored or own == stored:
            return
        (layout, _, held), (stored_layout, _, stored_held) = own.partition("-"), stored.partition("-")
        differs = "its layers differ" if layout != stored_layout else "the values of what it does not train differ"
        if layout == stored_layout and held == stored_held:
            differs = "it differs"
        raise CoveyError(
            f"model '{self.title}' on this machine is not the one of {what} (fingerprint {own}, there {stored}): {differs}; "
            "restore the version of its code and of the weights that it reads"
        )

    # ------------------------------------------------------------ the vector

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """Shape of everything in the flat vector, in its order."""
        if self.plain:
            return {name: p.shape for name, p in self.architecture.named_parameters()}
        running = set(self.facts.running) if self.buffers == "shared" else set()
        return {
            name: tensor.shape
            for name, tensor in _tensors(self.architecture)
            if (isinstance(tensor, nn.Parameter) and tensor.requires_grad) or name in running
        }

    @cached_property
    def local(self) -> dict[str, torch.Size]:
        """Shapes of the buffers that a client keeps: the tail of the whole vector."""
        if self.plain or self.buffers == "shared":
            return {}
        return {name: b.shape for name, b in _tensors(self.architecture) if name in self.facts.running}

    @property
    def features(self) -> int:
        """Width of the last hidden layer: what the last layer (and a second head) reads. 0: it ends in no linear layer."""
        return self.facts.features

    @cached_property
    def d(self) -> int:
        """Numbers that algorithms see."""
        return numbers(self.shapes)

    @cached_property
    def size(self) -> int:
        """With the buffers that a client keeps."""
        return self.d + numbers(self.local)

    def head_size(self, classes: int) -> int:
        """Parameters of a second head with this many classes."""
        self.check_last_layer("a second head")
        return (self.features + 1) * classes

    def check_last_layer(self, who: str) -> None:
        """Refuses a network that ends in no linear layer, for what needs one."""
        if not self.features:
            raise CoveyError(
                f"{who} reads what the last layer of the model reads, and model '{self.title}' does not end in a linear layer "
                "on [batch, features]: let its forward return the outputs of an nn.Linear"
            )

    def output_size(self, who: str) -> int:
        """Parameters of the output layer, for what looks for them at the end of the vector."""
        self.check_last_layer(who)
        names = [f"{self.facts.last}.weight", f"{self.facts.last}.bias"]
        if list(self.shapes)[-2:] != names:
            raise CoveyError(
                f"{who} looks for the output layer at the end of the model, and the parameters of '{self.title}' end in "
                f"'{list(self.shapes)[-1]}': register the output layer last, with a bias, and train it"
            )
        return (self.features + 1) * self.classes

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of `[..., d]`, one per tensor, `[..., *shape]`."""
        return views(vector, self.shapes)

    def flatten(self, tensors: dict[str, Tensor]) -> Tensor:
        """The flat vector [d] of named tensors."""
        return torch.cat([tensors[name].detach().reshape(-1).float() for name in self.shapes])

    def read(self, module: nn.Module) -> Tensor:
        """The flat vector [d] of a module."""
        return self.flatten(dict(_tensors(module)))

    def read_local(self, module: nn.Module) -> Tensor:
        """The buffers that a client keeps, flat."""
        own = dict(_tensors(module))
        return torch.cat([torch.zeros(0), *(own[name].detach().reshape(-1).float().cpu() for name in self.local)])

    @cached_property
    def fresh_local(self) -> Tensor:
        """Those of a client that has not trained."""
        return self.read_local(self.architecture) if self.local else torch.zeros(0)

    def write(self, vector: Tensor, module: nn.Module) -> None:
        """Sets a module's tensors, from [d] or with a client's own buffers from [size]."""
        own = dict(_tensors(module))
        shapes = self.shapes | self.local if len(vector) == self.size else self.shapes
        with torch.no_grad():
            for name, value in views(vector, shapes).items():
                own[name].copy_(as_tensor_of(name, own[name], value))

    def whole(self, vectors: Tensor) -> Tensor:
        """`[..., d]` with the buffers of a client that has not trained; what is whole already stays so."""
        if vectors.shape[-1] == self.size:
            return vectors
        tail = self.fresh_local.to(vectors.device).expand(*vectors.shape[:-1], -1)
        return torch.cat([vectors, tail], dim=-1)


def once(function: Callable[[Network], T]) -> Callable[[Network], T]:
    """Computed once for a network object. Not for equal ones: behind one name a notebook may have defined another class since."""
    name = f"_{function.__module__}.{function.__name__}"

    @functools.wraps(function)
    def remembered(network: Network) -> T:
        if name not in network.__dict__:
            network.__dict__[name] = function(network)
        value: T = network.__dict__[name]
        return value

    return remembered


def with_zeros(module: Any, device: str | torch.device) -> Any:
    """A module of the device `meta`, with values. `to_empty` does this too, but torch's `empty_like` of a tensor without values
    imports sympy, for which every silo, worker and command would compute half a second before its first round.
    """
    return module._apply(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype, device=device))


def views(vector: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """`[..., d]` cut into `[..., *shape]`, in the order of `shapes`."""
    parts = torch.split(vector, [math.prod(shape) for shape in shapes.values()], dim=-1)
    return {name: part.view((*part.shape[:-1], *shape)) for (name, shape), part in zip(shapes.items(), parts)}


def as_tensor_of(name: str, tensor: Tensor, value: Tensor) -> Tensor:
    """Numbers of a vector as a module can hold them: counters are whole, and no variance is below 0, which noise can make of it."""
    if not tensor.is_floating_point():
        return value.round()
    return value.clamp(min=0) if name.endswith("running_var") else value


def numbers(shapes: dict[str, torch.Size]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def check_buffers(buffers: str) -> None:
    if buffers not in BUFFERS:
        raise CoveyError(f"layers.buffers is {buffers!r}: 'shared' or 'local'{meant(buffers, BUFFERS)}")


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers, layer by layer; what is tied stands where it comes first."""
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for own, tensor in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{prefix}.{own}" if prefix else own, tensor


@functools.lru_cache(maxsize=64)  # nobody computes with it, so runs of one process may share it
def _outline(spec: Any, input_shape: tuple[int, ...], classes: int, kind: str, vocabulary: int) -> nn.Module:
    """A module without values, to look at."""
    with torch.device("meta"):
        module: nn.Module = spec.build(input_shape, classes, kind, vocabulary)
    return module


def _closed_form(module: nn.Module) -> bool:
    """Whether covey knows how its layers start and what they compute, also in training, and the vector holds all of it."""
    kinds = {type(part) for part in module.modules()}
    owners = {type(owner) for owner in module.modules() if list(owner.parameters(recurse=False))}
    return (
        type(module) is Classifier
        and all(kind.__module__.partition(".")[0] in KNOWN and not issubclass(kind, OTHERWISE) for kind in kinds)
        and all(issubclass(kind, DRAWN) for kind in owners)
        and not list(module.buffers())
        and all(p.requires_grad for p in module.parameters())
        and len(list(module.named_parameters(remove_duplicate=False))) == len(list(module.parameters()))  # none is tied
    )
