"""A model of the user's own: a module class, a function that gives a module, or a module that stands at a path.

It is called with what it asks for by name, and with the options of the experiment's `[model]` table:

    input_shape   of one sample as the module reads it: (channels, height, width), (features,) or (tokens,)
    outputs       how many numbers it must give for a sample; `classes` is the same
    vocabulary    token data: how many ids there are
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import nn

from covey.errors import CoveyError

OFFERED = ("input_shape", "outputs", "classes", "vocabulary")


@dataclass(frozen=True)
class Own:
    """What stands at a path, with the options it is called with."""

    name: str
    thing: Any = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: ClassVar[str] = "own"  # images channels first, everything else as the dataset holds it
    given: ClassVar[bool] = False  # its values are drawn anew for every key

    @property
    def title(self) -> str:
        return self.name

    def read_shape(self, input_shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
        return as_torch_reads(input_shape, kind)

    def build(self, input_shape: tuple[int, ...], classes: int, kind: str = "image", vocabulary: int = 0) -> nn.Module:
        if isinstance(self.thing, nn.Module):
            raise CoveyError(
                f"model '{self.name}' is one module that is already built: write the path of its class, or of a function "
                "that builds it, so that every run begins with values of its own"
            )
        offered = {
            "input_shape": as_torch_reads(input_shape, kind),
            "outputs": classes,
            "classes": classes,
            "vocabulary": vocabulary,
        }
        arguments = _arguments(self.name, self.thing, offered, self.options)
        try:
            module = self.thing(**arguments)
        except CoveyError:
            raise
        except Exception as e:
            raise CoveyError(
                f"model '{self.name}' could not be built for samples of the shape {offered['input_shape']} and {classes} "
                f"outputs: {type(e).__name__}: {first_line(e)}{_place(e)}"
            ) from e
        if not isinstance(module, nn.Module):
            raise CoveyError(f"model '{self.name}' gave a {type(module).__name__}: expected a torch.nn.Module")
        return module


def as_torch_reads(input_shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """Of one sample: images with their channels first, one channel where they have none."""
    if kind != "image" or len(input_shape) not in (2, 3):
        return input_shape
    return (input_shape[2] if len(input_shape) == 3 else 1, *input_shape[:2])


def first_line(error: BaseException) -> str:
    """What an error of somebody else's code says, short enough for one sentence."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or ["no reason said"]
    return lines[0][:200].rstrip(".")


def _place(error: BaseException) -> str:
    """Where the code that builds a model failed: its own last line, not torch's below it; nothing where it was not even called."""
    frames = list(traceback.walk_tb(error.__traceback__))[1:]
    own = [at for at in frames if at[0].f_globals.get("__name__", "").partition(".")[0] != "torch"]
    return f" (at {own[-1][0].f_code.co_filename}:{own[-1][1]})" if own else ""


def _arguments(
    name: str, thing: Callable[..., Any], offered: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What the thing is called with: options, and what is offered where it asks for it by name."""
    try:
        asked = inspect.signature(thing).parameters
    except (TypeError, ValueError):  # a builtin: nothing is known about it
        return dict(options)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in asked.values())
    named = {n: p for n, p in asked.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if unknown := [n for n in options if n not in named and not takes_any]:
        known = [n for n in named if n not in OFFERED]
        raise CoveyError(
            f"model.{unknown[0]} is set, but '{name}' takes no such argument"
            + (f": it takes {', '.join(known)}" if known else "")
        )
    arguments = {n: offered[n] for n in named if n in offered} | dict(options)
    for n, parameter in named.items():
        if n not in arguments and parameter.default is parameter.empty:
            raise CoveyError(
                f"model '{name}' needs an argument '{n}': set model.{n}, give it a default, or call it one of "
                f"{', '.join(OFFERED)}, which covey fills in"
            )
    return arguments
