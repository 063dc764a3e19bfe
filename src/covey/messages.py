"""The wire: what one party sends another, and the one codec for it.

Messages are frozen dataclasses of tensors, arrays, bytes, scalars and containers of these, registered with `@message`. The
codec serves deployment, byte accounting, checkpoints and the pipes between processes. covey's own messages cross under the
name of their class, those of other packages under `module:Class`, so that two packages never collide. The codec never
executes what it reads, and imports nothing for it but the modules of covey that define a message: a name outside the
registry, a size that does not fit the bytes at hand or a nesting too deep is refused before any memory is taken for it. What
comes from other parties is read with `foreign=True`: a header no longer than a share of the message (a tree takes some 35
times the memory of its text), and dictionary keys whose hashes nobody can make collide.

Layout: `CVY1`, header length (u32), header (JSON tree), then the buffers that the tree refers to, one after the other.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import struct
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.errors import CoveyError, printable
from covey.names import path_of

MAGIC = b"CVY1"
MAX_DEPTH = 24
HEADER_BYTES, HEADER_SHARE = 1 << 16, 8  # of a foreign message: at most so many, and one in so many of all bytes
LARGEST_KEY = 2**61 - 2  # integers up to it have hashes of their own
LONG = 1024  # bytes that are worth a reference when they occur again
LATER = {"later": True}  # of a field that messages were once stored and sent without
_KINDS: dict[str, type] = {}  # name on the wire -> class
_NAMES: dict[type, str] = {}  # class -> the name that it is written under
_SIZES: dict[tuple[Any, ...] | None, int] = {}  # by `_shape`: the replies of a round mostly have a few
MOST_SIZES = 4096
Keep = Callable[[NDArray[Any]], NDArray[Any]]  # a copy of an array, which is a view of what is read

_DTYPES = (
    "float32",
    "float64",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)
T = TypeVar("T")


class Rows(Sequence[T]):
    """A field of a message that stands for many: those of clients that run as one, or a list. Each is written when somebody asks
    for it. On the wire, in a copy and in a file it is the list.
    """

    def like(self) -> T:
        """Something of the same size as each of them."""
        raise NotImplementedError


@overload
def message(cls: type[T]) -> type[T]: ...
@overload
def message(*, also: tuple[str, ...]) -> Callable[[type[T]], type[T]]: ...
def message(cls: type[T] | None = None, *, also: tuple[str, ...] = ()) -> Any:
    """Class decorator: this frozen dataclass may cross the wire. It is read under the names in `also` too, its former ones."""
    if cls is None:
        return lambda decorated: _register(decorated, also)
    return _register(cls, also)


def _register(cls: type[T], also: tuple[str, ...]) -> type[T]:
    ours = cls.__module__.partition(".")[0] == "covey"
    name = cls.__name__ if ours else path_of(cls)
    for written in (name, *also):
        known = _KINDS.get(written)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise CoveyError(f"two messages are called {written} ({known.__module__} and {cls.__module__}): rename one")
        if known is not None:  # the same one defined anew, as in a notebook: the former can no longer be sent
            _NAMES.pop(known, None)
        _KINDS[written] = cls
    _NAMES[cls] = name
    return cls


def _kind(name: str) -> type:
    """The class of a name on the wire. States written before had bare names for everyone's classes, too."""
    if name not in _KINDS and name in _own_kinds():
        import_module(_own_kinds()[name])
    if name in _KINDS:
        return _KINDS[name]
    bare = [cls for cls in _NAMES if cls.__name__ == name]
    if len(bare) == 1:
        return bare[0]
    if bare:
        raise ValueError(f"it is of the kind {name!r}, which is one of {', '.join(map(path_of, bare))}")
    module = name.partition(":")[0] if ":" in name else "the package that defines it"
    raise ValueError(f"it is of the unknown kind {name[:100]!r}: import {module[:100]!r} first")


@functools.cache
def _own_kinds() -> dict[str, str]:
    """Name on the wire -> module, of all messages that covey defines: one may be read before its module was needed."""
    folder = Path(__file__).parent
    kinds: dict[str, str] = {}
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body if "@message" in text else ():
            for mark in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if ast.unparse(mark).partition("(")[0] == "message":
                    module = ".".join(["covey", *file.relative_to(folder).with_suffix("").parts])
                    former = [word.value for word in ast.walk(mark) if isinstance(word, ast.Constant)]
                    kinds |= {str(name): module for name in (cast(ast.ClassDef, node).name, *former)}
    return kinds


def encode(value: Any) -> bytes:
    """The bytes of a message or of any tree of the admitted types."""
    return b"".join(pieces(value))


def pieces(value: Any) -> list[bytes | memoryview]:
    """The same, to be written one after another: tensors on the CPU are not copied, so they must stay as they are until then."""
    buffers = _Buffers()
    header = _header(value, buffers)
    return [MAGIC + struct.pack("<I", len(header)) + header, *buffers.views]


def size(value: Any) -> int:
    """`len(encode(value))` without touching the buffers: tensors stay on their device."""
    shape = _shape(value)
    known = _SIZES.get(shape)
    if known is None:
        lengths = _Lengths()
        known = 8 + len(_header(value, lengths)) + lengths.total
        if shape is not None:
            if len(_SIZES) >= MOST_SIZES:
                _SIZES.clear()
            _SIZES[shape] = known
    return known


_PLAIN = frozenset((int, str, bool))


def _shape(value: Any) -> tuple[Any, ...] | None:
    """All that the size of a flat message depends on; None: it is measured each time."""
    kind = type(value)
    if kind not in _NAMES:
        return None
    shape: list[Any] = [kind]
    buffers: list[int] = []  # that are referred to where they occur again
    for name, absent in _field_names(cast(Any, kind)).items():
        part = getattr(value, name)
        type_of_part = type(part)
        if type_of_part is Tensor or isinstance(part, Tensor):
            shape += (part.dtype, part.shape)
            buffers.append(id(part))
        elif type_of_part is bytes:
            shape += (bytes, len(part))
            if len(part) >= LONG:
                buffers.append(id(part))
        elif type_of_part is int and not absent:
            shape += (int, len(str(part)))  # the number of a round, or of a client
        elif type_of_part is str and not absent and part.isascii() and part.isprintable():
            shape += (str, len(part) + part.count('"') + part.count("\\"))  # these two are written with one sign more
        elif part is None or type_of_part in _PLAIN:
            shape += (type_of_part, part)
        elif type_of_part is float:
            shape.append(repr(part))  # -0.0 equals 0.0, and is longer
        else:
            return None
    return tuple(shape) if len(buffers) < 2 or len(set(buffers)) == len(buffers) else None


@functools.cache
def _field_names(kind: type) -> dict[str, bool]:
    """Names, and whether a message may be written without the field: see `_is_absent`."""
    return {field.name: "later" in field.metadata for field in dataclasses.fields(kind)}


def decode(
    data: bytes | bytearray | memoryview, *, foreign: bool = False, keep: Keep | None = None, lazily: bool = False
) -> Any:
    """The value that `encode` was given; CoveyError on anything that `encode` cannot have written.

    `foreign`: by another party, who may mean to cost us time and memory. `keep`: copies what becomes a tensor to where it shall
    lie, as a value may be larger than memory. `lazily`: of a dictionary whose last value is a list, this value is an iterator that
    reads one item at a time, from data that must stay until then: an item that is dropped leaves its memory to the next.
    """
    view = memoryview(data)
    if len(view) < 8 or bytes(view[:4]) != MAGIC:
        raise CoveyError("these bytes are not a covey message: they do not begin with CVY1")
    (length,) = struct.unpack("<I", view[4:8])
    if 8 + length > len(view):
        raise CoveyError(f"a message of {len(view)} bytes is cut off: its header alone claims {length}")
    if foreign and length > HEADER_BYTES + len(view) // HEADER_SHARE:
        raise CoveyError(f"a message of {len(view)} bytes has a header of {length}: too many for what it carries")
    try:
        header = bytes(view[8 : 8 + length])
        tree = json.loads(header)
        reader = _Reader(view[8 + length :], foreign, keep, refers=b'"again"' in header)
        value = reader.lazily(tree) if lazily else None
        if value is not None:
            return value
        value = reader.value(tree, 0)
    except CoveyError:
        raise
    except Exception as e:  # of whatever these bytes make JSON, numpy or a message's own checks raise
        raise CoveyError(f"a message could not be read: {printable(str(e), 300)}") from e
    reader.end()
    return value


def check_fields(value: Any) -> None:
    """Refuses a message, read from somewhere else, with a field of another type than its class says; roles check more."""
    kind: type = type(value)
    hints = _hints(kind)
    for field in dataclasses.fields(value):
        if not _fits(getattr(value, field.name), hints[field.name]):
            actual = type(getattr(value, field.name)).__name__
            raise CoveyError(f"{type(value).__name__}.{field.name} is a {actual}, which it cannot be")


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _fits(value: Any, hint: Any) -> bool:
    kind, inside = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inside)
    if kind is Any:
        return True
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return False
    if kind is dict and inside:
        return all(_fits(k, inside[0]) and _fits(v, inside[1]) for k, v in value.items())
    if kind is list and inside:
        return all(_fits(one, inside[0]) for one in value)
    return kind is not tuple or not inside or Ellipsis in inside or _each_fits(value, inside)


def _each_fits(value: tuple[Any, ...], inside: tuple[Any, ...]) -> bool:
    return len(value) == len(inside) and all(_fits(one, hint) for one, hint in zip(value, inside))


class _Lengths:
    """The bytes of buffers. A tensor, or long bytes, that occur again are referred to: what many share is stored once."""

    def __init__(self) -> None:
        self.shared: dict[int, tuple[int, Any]] = {}  # id -> (its number, itself: so its id stays its own)
        self.rows: dict[int, tuple[Any, list[Any]]] = {}  # id -> (themselves, what stands for each of them)
        self.total = 0

    def add(self, value: Tensor | np.ndarray[Any, Any] | memoryview) -> None:
        self.total += value.nbytes

    def each(self, rows: Rows[Any]) -> list[Any]:
        """What is as long as each of them, the same where they come again: none is written for that."""
        if id(rows) not in self.rows:
            like = rows.like()
            self.rows[id(rows)] = (rows, [memoryview(like) for _ in range(len(rows))])
        return self.rows[id(rows)][1]

    def again(self, value: Any) -> dict[str, int] | None:
        """A reference to a value that has come already; else it is counted, and there is none yet."""
        if id(value) in self.shared:
            return {"again": self.shared[id(value)][0]}
        self.shared[id(value)] = (len(self.shared), value)
        return None


class _Buffers(_Lengths):
    """The buffers themselves, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[memoryview] = []

    def each(self, rows: Rows[Any]) -> list[Any]:
        return list(rows)

    def add(self, value: Tensor | np.ndarray[Any, Any] | memoryview) -> None:
        if isinstance(value, Tensor):
            value = value.detach().cpu().contiguous().numpy()
        if isinstance(value, np.ndarray):
            value = memoryview(cast(Any, np.ascontiguousarray(value).reshape(-1).view(np.uint8)))
        self.views.append(value)


def to_device(value: Any, device: str) -> Any:
    """The same tree with its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(to_device(v, device) for v in value)
    if isinstance(value, dict):
        return {k: to_device(v, device) for k, v in value.items()}
    if type(value) in _NAMES:
        fields = {f.name: to_device(getattr(value, f.name), device) for f in dataclasses.fields(cast(Any, value))}
        return dataclasses.replace(cast(Any, value), **fields)
    return value


def copied(value: Any) -> Any:
    """The same tree in memory of its own: what is done to the copy does not reach the message."""
    if isinstance(value, Tensor):
        return value.detach().clone()  # of a view only what it shows, where `copy.deepcopy` takes the whole storage
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Rows):
        return list(value)
    if isinstance(value, list | tuple):
        return type(value)(copied(v) for v in value)
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    if type(value) in _NAMES:
        fields = {f.name: copied(getattr(value, f.name)) for f in dataclasses.fields(cast(Any, value))}
        return dataclasses.replace(cast(Any, value), **fields)
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same numbers and words; without a copy of either."""
    if one is other:
        return True
    one, other = (list(value) if isinstance(value, Rows) else value for value in (one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other.to(one.device))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if type(one) in _NAMES:
        return all(same(getattr(one, name), getattr(other, name)) for name in _field_names(cast(Any, type(one))))
    return bool(one == other)


def _header(value: Any, buffers: _Lengths) -> bytes:
    """The tree of a value as it is written, its buffers added to `buffers`."""
    return json.dumps(_tree(value, buffers), separators=(",", ":")).encode()


def _tree(value: Any, buffers: _Lengths) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return buffers.again(value) or _array("t", value, str(value.dtype).removeprefix("torch."), buffers)
    if isinstance(value, np.ndarray):
        return _array("a", value, value.dtype.name, buffers)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes | bytearray | memoryview):
        raw = memoryview(value).cast("B")
        if len(raw) >= LONG and (known := buffers.again(value)):
            return known
        buffers.add(raw)
        return {"b": len(raw)}
    if isinstance(value, list | Rows):
        return {"l": [_tree(v, buffers) for v in (buffers.each(value) if isinstance(value, Rows) else value)]}
    if isinstance(value, tuple):
        return {"u": [_tree(v, buffers) for v in value]}
    if isinstance(value, dict):
        return {"d": [[_tree(k, buffers), _tree(v, buffers)] for k, v in value.items()]}
    name = _NAMES.get(type(value))
    if name is not None:
        said = [f for f in dataclasses.fields(cast(Any, value)) if not _is_absent(value, f)]
        return {"m": name, "f": {f.name: _tree(getattr(value, f.name), buffers) for f in said}}
    raise CoveyError(
        f"a {type(value).__name__} cannot cross the wire: use tensors, bytes and scalars, or register it with @message"
    )


def _is_absent(value: Any, field: dataclasses.Field[Any]) -> bool:
    """A field that came later (metadata=LATER) and is not used: the message is the bytes that it was before."""
    return "later" in field.metadata and getattr(value, field.name) is field.default


def _array(kind: str, array: Tensor | np.ndarray[Any, Any], dtype: str, buffers: _Lengths) -> dict[str, Any]:
    if dtype not in _DTYPES:
        raise CoveyError(f"arrays of {dtype} cannot cross the wire; use one of {', '.join(_DTYPES)}")
    buffers.add(array)
    return {kind: dtype, "s": list(array.shape)}


def _own(array: NDArray[Any]) -> NDArray[Any]:
    return array.copy()


class _Reader:
    """Walks the header's tree and takes the buffers in order."""

    def __init__(self, body: memoryview, foreign: bool, keep: Keep | None = None, refers: bool = True) -> None:
        self.body, self.foreign, self.keep = body, foreign, keep or _own
        self.refers = refers  # whether something in the tree may stand for what came before
        self.used = 0
        self.shared: list[Tensor | bytes] = []

    def take(self, count: int) -> memoryview:
        if not isinstance(count, int) or count < 0 or self.used + count > len(self.body):
            raise ValueError(f"a buffer of {count} bytes is announced, {len(self.body) - self.used} are left")
        self.used += count
        return self.body[self.used - count : self.used]

    def end(self) -> None:
        if self.used != len(self.body):
            raise CoveyError(f"a message carries {len(self.body) - self.used} bytes that its header does not mention")

    def lazily(self, tree: Any) -> dict[Any, Any] | None:
        """A dictionary whose last value is a list; None: it is none."""
        items = tree.get("d") if isinstance(tree, dict) else None
        if not items or not isinstance(items[-1][1], dict) or "l" not in items[-1][1]:
            return None
        (*others, (last, listed)) = items
        return {self.key(k, 1): self.value(v, 1) for k, v in others} | {self.key(last, 1): self._each(listed["l"])}

    def _each(self, nodes: list[Any]) -> Iterator[Any]:
        for node in nodes:
            yield self.value(node, 2)
        self.end()

    def value(self, node: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError("a bare list stands where a value should be")
            return node
        if "t" in node:
            tensor = torch.from_numpy(self.keep(self.array(node["t"], node["s"])))
            if self.refers:
                self.shared.append(tensor)
            return tensor
        if "a" in node:
            return self.array(node["a"], node["s"]).copy()
        if "again" in node:
            if not 0 <= node["again"] < len(self.shared):
                raise ValueError("it refers to a tensor or to bytes that have not come yet")
            return self.shared[node["again"]]
        if "b" in node:
            taken = bytes(self.take(node["b"]))
            if len(taken) >= LONG and self.refers:
                self.shared.append(taken)
            return taken
        if "l" in node:
            return [self.value(v, depth + 1) for v in node["l"]]
        if "u" in node:
            return tuple(self.value(v, depth + 1) for v in node["u"])
        if "d" in node:
            return {self.key(k, depth + 1): self.value(v, depth + 1) for k, v in node["d"]}
        return _kind(node["m"])(**{name: self.value(v, depth + 1) for name, v in node["f"].items()})

    def key(self, node: Any, depth: int) -> Any:
        if self.foreign and not (isinstance(node, str) or (isinstance(node, int) and abs(node) <= LARGEST_KEY)):
            raise ValueError("a dictionary has a key that is neither text nor an integer of at most 61 bits")
        return self.value(node, depth)

    def array(self, name: str, shape: list[int]) -> np.ndarray[Any, Any]:
        if name not in _DTYPES or len(shape) > 8 or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError(f"an array of {name} with shape {shape} is not admitted")
        dtype = np.dtype(name)
        count = 1
        for n in shape:
            count *= n
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).reshape(shape)
