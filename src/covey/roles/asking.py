"""Asking a message, or its class, what it carries; and whether an honest sender can have sent it."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from covey.errors import CoveyError
from covey.roles.role import Bounds, Role
from covey.roles.sealed import Part, Sealed


@functools.cache
def of(kind: type) -> Mapping[str, Role]:
    """Field -> role of a message class; fields without a role are left out."""
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = typing.get_type_hints(kind, include_extras=True)
    declared = {f.name: _role(hints[f.name]) for f in dataclasses.fields(kind)}
    return {name: role for name, role in declared.items() if role is not None}


def carried(message: Any, *wanted: type[Role]) -> Iterator[tuple[Role, Any]]:
    """(role, value) of every field of these roles, in the message and in the messages inside it; None is not carried."""
    kind: type = type(message)
    for name, role in of(kind).items():
        value = getattr(message, name)
        if value is not None and isinstance(role, wanted):
            yield role, value
        elif not isinstance(value, Tensor | int | float):  # asked of every reply: most fields are these
            yield from _within(value, wanted)


def first(message: Any, *wanted: type[Role]) -> Any:
    """The first such value, or None."""
    return next((value for _, value in carried(message, *wanted)), None)


def carrier(message: Any, wanted: type[Role]) -> Any:
    """The message itself, or the first one inside it, that has a field of this role; None where there is none."""
    kind: type = type(message)
    if any(isinstance(role, wanted) for role in of(kind).values()):
        return message
    inner = (carrier(part, wanted) for _, part in carried(message, Part))
    return next((one for one in inner if one is not None), None)


def carries(kind: type, *wanted: type[Role], sealed: bool = False) -> bool:
    """Whether messages of this class may carry such a field; with `sealed` also inside something sealed."""
    return any(shows(role, *wanted, sealed=sealed) for role in declared(kind))


def shows(role: Role, *wanted: type[Role], sealed: bool = False) -> bool:
    """Whether a field of this role is one of these; with `sealed` also where it is something sealed with one of them inside."""
    inside = role.inside if sealed and isinstance(role, Sealed) else ()
    return isinstance(role, wanted) or any(issubclass(one, wanted) for one in inside)


@functools.cache
def declared(kind: type) -> tuple[Role, ...]:
    """All roles of a message class, those of message classes that its fields are annotated with included."""
    return tuple(_declared(kind, ()))


def _declared(kind: type, above: tuple[type, ...]) -> Iterator[Role]:
    if not dataclasses.is_dataclass(kind) or kind in above:
        return
    for hint in typing.get_type_hints(kind, include_extras=True).values():
        if (role := _role(hint)) is not None:
            yield role
        for inner in classes(hint):
            yield from _declared(inner, (*above, kind))


def _role(hint: Any) -> Role | None:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Role):
            return extra
        if isinstance(extra, type) and issubclass(extra, Role):
            return extra()
    return None


def classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from classes(argument)


def _within(value: Any, wanted: tuple[type[Role], ...]) -> Iterator[tuple[Role, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    for one in inner:
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            yield from carried(one, *wanted)


def check(message: Any, bounds: Bounds) -> None:
    """Refuses, with a CoveyError that names the field, a message that an honest sender cannot have sent."""
    kind: type = type(message)
    for name, role in of(kind).items():
        try:
            role.check(getattr(message, name), bounds)
        except CoveyError as e:
            raise CoveyError(f"{kind.__name__}.{name} {e}") from e
