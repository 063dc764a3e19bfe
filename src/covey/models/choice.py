"""What an experiment's `model` may be, in TOML, on the command line and in Python, and how it is written down again.

"cnn", "package.module:Net"               a name, or the path of a module class or of a function that gives a module
{"name": …, "rank": 4}                    the same with options
Net                                       a class or function that can be imported: its path is written down
Net(…)                                    a module: its values are where training begins, and only its fingerprint is written
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from covey import config
from covey.errors import CoveyError
from covey.models import MODELS
from covey.models.own import Own, as_torch_reads
from covey.names import path_of

GIVEN = "given"  # what a table says of a module that was given as an object


@dataclass(frozen=True)
class Configured:
    """A model with options."""

    name: str
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(f'{key} {value}' for key, value in self.options)})"

    def as_table(self) -> dict[str, Any]:
        return {"name": self.name, **{key: list(v) if isinstance(v, tuple) else v for key, v in self.options}}


@dataclass(frozen=True)
class Given:
    """A module that was given as an object. No code and no values are written down: it is known by its fingerprint."""

    of: str  # its class, for who reads it
    fingerprint: str  # of its structure and all its values

    def __str__(self) -> str:
        return f"a {self.of.rpartition(':')[2]} given as an object"

    def as_table(self) -> dict[str, Any]:
        return {"name": GIVEN, "of": self.of, "fingerprint": self.fingerprint}


Model = str | Configured | Given
_GIVEN: dict[
    str, nn.Module
] = {}  # modules that this process was given, by fingerprint: copies, so that they stay as they were


def model_of(value: Any) -> Model:
    """What an experiment holds, of what a user writes."""
    if isinstance(value, Configured | Given):
        return value
    if isinstance(value, str):
        return value
    if isinstance(value, nn.Module):
        return _given(value)
    if isinstance(value, Mapping):
        return _from_table(value)
    if callable(value) and hasattr(value, "__qualname__"):
        if "<" in value.__qualname__:
            raise CoveyError(
                f"model is {value.__qualname__}, which is defined inside a function and cannot be imported: "
                "put it in a module, or give a module that is built already"
            )
        return path_of(value)
    raise CoveyError(
        f"model is {value!r}: expected a name such as '{next(iter(MODELS))}', package.module:Net, a table with a name, "
        "or a torch.nn.Module"
    )


def spec(model: Model) -> Any:
    """What builds the network: a `Spec`, or something with its `layout`, `title`, `read_shape` and `build`."""
    if isinstance(model, Given):
        return Template(model)
    name, options = (model, {}) if isinstance(model, str) else (model.name, dict(model.options))
    thing = MODELS.resolve(name)
    if isinstance(thing, type) and dataclasses.is_dataclass(thing) and not issubclass(thing, nn.Module):
        return config.build(thing, options, "model.")
    if all(hasattr(thing, part) for part in ("layout", "title", "build", "read_shape")):
        if options:
            raise CoveyError(f"model.{next(iter(options))} is set, but model '{name}' has no options")
        return thing
    if isinstance(thing, nn.Module) or callable(thing):
        return Own(name, thing, options)
    raise CoveyError(
        f"{name} is no model: expected a torch.nn.Module class, a function that gives a module, or a Spec, "
        f"and it is a {type(thing).__name__}"
    )


@dataclass(frozen=True)
class Template:
    """A given module: every network is a copy of it."""

    model: Given
    layout: ClassVar[str] = "own"
    given: ClassVar[bool] = True  # its values are its own: none are drawn
    name: str = field(default="", init=False)

    @property
    def title(self) -> str:
        return str(self.model)

    def read_shape(self, input_shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
        return as_torch_reads(input_shape, kind)

    def build(self, input_shape: tuple[int, ...], classes: int, kind: str = "image", vocabulary: int = 0) -> nn.Module:
        if self.model.fingerprint not in _GIVEN:
            raise CoveyError(
                f"this experiment's model was a {self.model.of} given as an object (fingerprint {self.model.fingerprint}), "
                "and no such module was given in this process: make an experiment with the same module first, or use "
                'model = "package.module:Net", which every process can import'
            )
        return copy.deepcopy(_GIVEN[self.model.fingerprint])


def fingerprint(module: nn.Module, names: frozenset[str] | None = None) -> str:
    """Of a module's structure and of its values; of these tensors only where `names` says which."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{type(module).__qualname__}\n{module!r}".encode() if names is None else b"values")
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if names is None or name in names:
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _given(module: nn.Module) -> Given:
    if any(nn.parameter.is_lazy(p) for p in [*module.parameters(), *module.buffers()]):
        raise CoveyError(
            f"the given {type(module).__name__} has lazy layers whose sizes are not known yet: run one batch through it "
            "first, or write the sizes out"
        )
    try:
        own = copy.deepcopy(module)
    except Exception as e:
        raise CoveyError(
            f"the given {type(module).__name__} cannot be copied ({type(e).__name__}), and every client needs a copy: "
            "give a function that builds it"
        ) from e
    given = Given(path_of(type(module)), fingerprint(own))
    _GIVEN[given.fingerprint] = own.cpu()
    return given


def _from_table(table: Mapping[str, Any]) -> Model:
    rest = dict(table)
    name = rest.pop("name", None)
    if not isinstance(name, str):
        raise CoveyError(f"model.name is missing: choose one of {', '.join(MODELS)}, or package.module:Net")
    if name == GIVEN:
        return Given(str(rest.get("of", "")), str(rest.get("fingerprint", "")))
    options = tuple((key, _hashable(key, value)) for key, value in rest.items())
    return Configured(name, options) if options else name


def _hashable(key: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(key, one) for one in value)
    if not isinstance(value, str | bool | int | float):
        raise CoveyError(f"model.{key} is {value!r}: expected a number, a text, true, false or a list of them")
    return value
