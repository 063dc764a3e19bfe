"""Tables to frozen dataclasses and back: a TOML file, the command line and Python all configure the same objects.

An unknown key or a value of the wrong type is refused with the nearest valid name; ranges are checked by the dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from covey.errors import CoveyError, nearest
from covey.names import Registry, name_of

T = TypeVar("T")
BARE_FRACTION = re.compile(
    r"^(?P<sign>[+-]?)\.(?=\d)"
)  # `.5`, which people and our pages write, and TOML does not know
Table = dict[str, Any]


def build(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """An instance of a dataclass from a table; nested dataclasses from nested tables."""
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls)) if f.init}
    kind: type = cls
    hints = _hints(kind)
    table = _with_new_names(cls, table, path)
    refused: Mapping[str, str] = getattr(cls, "REFUSED", {})  # keys of its kind that it cannot have -> why
    for name in table:
        if name in refused:
            raise CoveyError(f"'{path}{name}' cannot be set here: {refused[name]}")
        if name not in fields:
            raise CoveyError(f"unknown key '{path}{name}'{nearest(name, sorted(fields))}")
    values = {name: convert(value, hints[name], path + name) for name, value in table.items()}
    return cls(**values)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _with_new_names(cls: type, table: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Keys that older versions wrote under the names of today: `RENAMED` of the class, old -> new."""
    renamed: Mapping[str, str] = getattr(cls, "RENAMED", {})
    for old, new in renamed.items():
        if old in table and new in table:
            raise CoveyError(f"{path}{old} is the old name of {path}{new}, and both are set: leave {path}{old} out")
    return {renamed.get(name, name): value for name, value in table.items()}


def choose(registry: Registry, table: Mapping[str, Any] | str, path: str) -> Any:
    """An instance of the class that the table's `name` names; its other keys are that class's fields."""
    rest = {"name": table} if isinstance(table, str) else dict(table)
    name = rest.pop("name", None)
    if not isinstance(name, str):
        raise CoveyError(f"{path}.name is missing: choose one of {', '.join(registry)}")
    kind = registry.resolve(name)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise CoveyError(f"{path} '{name}' is no dataclass: fields are what a table can set")
    return build(kind, rest, path + ".")


def convert(value: Any, hint: Any, path: str) -> Any:
    """The value as the type that a field is annotated with, or a sentence about what was expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        for option in arguments:
            try:
                return convert(value, option, path)
            except CoveyError:
                continue
        raise CoveyError(f"{path} is {value!r}: expected {_name(hint)}")
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        if isinstance(value, Mapping):
            return build(cast(type, hint), value, path + ".")
    elif origin is tuple and isinstance(value, list | tuple):
        inner = arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None
        if inner is not None:
            return tuple(convert(v, inner, f"{path}[{i}]") for i, v in enumerate(value))
        if len(value) == len(arguments):
            return tuple(convert(v, a, f"{path}[{i}]") for i, (v, a) in enumerate(zip(value, arguments)))
    elif origin is dict and isinstance(value, Mapping):
        return dict(value)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif (hint is int and isinstance(value, int) and not isinstance(value, bool)) or (
        hint in (bool, str) and isinstance(value, hint)
    ):
        return value
    raise CoveyError(f"{path} is {value!r}: expected {_name(hint)}")


def _name(hint: Any) -> str:
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "nothing"}
    if hint in plain:
        return plain[hint]
    if typing.get_origin(hint) is tuple:
        return "a list"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_name(a) for a in typing.get_args(hint) if a is not type(None))
    return "a table" if dataclasses.is_dataclass(hint) else str(hint)


def read_toml(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise CoveyError(f"{path} is not valid TOML: {e}") from e
    except RecursionError as e:
        raise CoveyError(f"{path} is nested too deeply for an experiment: it has a few tables, none deep") from e
    except OSError as e:
        raise CoveyError(f"{path} cannot be read: {e.strerror}") from e


def assign(table: Table, assignment: str) -> Table:
    """A copy of the table with `some.key=value` set; the value is TOML, or else taken as a text."""
    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise CoveyError(f"--set {assignment!r}: expected key=value, for example training.lr=0.1")
    written = BARE_FRACTION.sub(r"\g<sign>0.", text.strip())
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
    head, *rest = name.strip().split(".")
    copy = dict(table)
    if not rest:
        copy[head] = value
        return copy
    inner = copy.get(head, {})
    if isinstance(inner, str):  # `algorithm = "ifca"` is short for `algorithm.name = "ifca"`
        inner = {"name": inner}
    if not isinstance(inner, Mapping):
        raise CoveyError(f"--set {assignment!r}: '{head}' is {inner!r}, no table that has keys; set '{head}' itself")
    copy[head] = assign(dict(inner), ".".join(rest) + "=" + text)
    return copy


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """`above` over `below`, table by table; a table with another `name` replaces the one below it whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        old = {"name": old} if isinstance(old, str) and isinstance(value, Mapping) else old
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def later(default: Any) -> Any:
    """A field that came when runs had been stored without it: at its default it names no other run than before."""
    return dataclasses.field(default=default, metadata={"later": True})


def to_table(value: Any, chosen: bool = True, naming: bool = False) -> Any:
    """A dataclass as plain tables, what `build` and `choose` read back.

    `chosen`: by a name, which then comes first. Of fields it is what is annotated with Any; other tables have no choice.
    `naming`: without `later` fields at their defaults, for what names a run.
    """
    value = getattr(value, "stands_for", value)  # what wraps another thing is written as that thing
    if hasattr(value, "as_table") and not isinstance(value, type):  # it knows best how it is written
        return value.as_table()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if f.init and not (naming and _unchanged(value, f))]
        inner = {f.name: to_table(getattr(value, f.name), "Any" in str(f.type), naming) for f in fields}
        if chosen and isinstance(getattr(type(value), "name", None), str):
            inner = {"name": name_of(value)} | {k: v for k, v in inner.items() if k != "name"}
        return {k: v for k, v in inner.items() if v is not None}
    if isinstance(value, tuple | list):
        return [to_table(v, chosen, naming) for v in value]
    if isinstance(value, Mapping):
        return {k: to_table(v, chosen, naming) for k, v in value.items()}
    return value


def _unchanged(value: Any, field: dataclasses.Field[Any]) -> bool:
    return "later" in field.metadata and getattr(value, field.name) == field.default


def to_toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """TOML text of a table of scalars, lists and tables."""
    scalars = [f"{k} = {_literal(v)}" for k, v in table.items() if not isinstance(v, Mapping)]
    parts = ["\n".join(scalars)] if scalars else []
    for k, v in table.items():
        if isinstance(v, Mapping):
            parts.append(f"[{prefix}{k}]\n" + to_toml(v, f"{prefix}{k}."))
    return "\n\n".join(p.rstrip() for p in parts) + "\n"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_literal(v)}" for k, v in value.items()) + " }"
    raise CoveyError(f"a {type(value).__name__} cannot be written to TOML")
