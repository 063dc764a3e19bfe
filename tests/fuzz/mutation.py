"""Changes that keep the outer form: of values that cross the wire, of the codec's tree, of JSON.

Which change is made follows from `Choices`, so that an input says all of it.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.messages import MAGIC, encode
from fuzz.engine import Choices

TEXTS = (
    "",
    "x",
    "client:0",
    "client:99",
    "server",
    "\x1b[2J\x1b]0;x\x07",
    "é\ud7ff",
    "../../x",
    "x" * 3000,
    "\0",
    "-1",
)
NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400)
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-45, 3e38, 1e308, float("nan"), float("inf"), -float("inf"))
SINGLES = tuple(number for number in FLOATS if number != 1e308)  # that float32 holds
DTYPES = (torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32)


def odd(choices: Choices) -> Any:
    """A value where another one is expected."""
    kind = choices.below(10)
    if kind == 0:
        return choices.of(NUMBERS)
    if kind == 1:
        return choices.of(FLOATS)
    if kind == 2:
        return choices.of(TEXTS)
    if kind == 3:
        return choices.of((None, True, False))
    if kind == 4:
        return choices.of((b"", b"\0" * 64, b"none\n", b"CVY1\2\0\0\0{}", choices.bytes(20)))
    if kind == 5:
        return choices.of(([], {}, (), [[]], [None], {"": []}, [0] * 1000, [b""] * 4, [[0, 0]] * 3))
    if kind == 6:
        shape = choices.of(((0,), (1,), (3,), (2, 2), (0, 5), (1, 1, 1, 1), ()))
        return torch.full(shape, choices.of(SINGLES), dtype=torch.float32)
    if kind == 7:
        return np.zeros(choices.of(((0,), (2,), (4, 2), (2, 4))), choices.of(("uint8", "int64", "float64", "bool")))
    if kind == 8:
        return {choices.of((0, 1, -1, "a", 2**60)): odd(choices)}
    return [odd(choices), odd(choices)]


def changed(value: Any, choices: Choices, depth: int = 0) -> Any:
    """The value with one thing in it changed."""
    if choices.below(6) == 5 or depth > 8:
        return odd(choices)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        if not names:
            return odd(choices)
        name = choices.of(names)
        return _with(value, name, changed(getattr(value, name), choices, depth + 1))
    if isinstance(value, dict) and value:
        return _changed_table(value, choices, depth)
    if isinstance(value, list | tuple) and value:
        return _changed_list(value, choices, depth)
    if isinstance(value, Tensor):
        return _changed_tensor(value, choices)
    if isinstance(value, np.ndarray):
        return _changed_tensor(torch.from_numpy(value.copy()), choices).numpy()
    if isinstance(value, bytes):
        return _changed_bytes(value, choices)
    if isinstance(value, bool) or value is None:
        return odd(choices)
    if isinstance(value, int):
        return choices.of((value + 1, value - 1, -value, value * 2, choices.of(NUMBERS), 0.5))
    if isinstance(value, float):
        return choices.of(FLOATS)
    return choices.of(TEXTS)


def _with(value: Any, name: str, field: Any) -> Any:
    """A copy with another field, past whatever the class itself would refuse: a liar does not use our constructor."""
    copy = object.__new__(type(value))
    for f in dataclasses.fields(value):
        object.__setattr__(copy, f.name, field if f.name == name else getattr(value, f.name))
    return copy


def _changed_table(value: dict[Any, Any], choices: Choices, depth: int) -> dict[Any, Any]:
    key, kind, copy = choices.of(list(value)), choices.below(4), dict(value)
    if kind == 0:
        del copy[key]
    elif kind == 1:
        copy[choices.of((-1, 10**6, "", str(key), 2**60))] = copy.pop(key)
    else:
        copy[key] = changed(copy[key], choices, depth + 1)
    return copy


def _changed_list(value: Any, choices: Choices, depth: int) -> Any:
    at, kind, items = choices.below(len(value)), choices.below(7), list(value)
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.insert(at, items[at])
    elif kind == 2:
        items.reverse()
    elif kind == 3:
        items *= choices.of((0, 2, 50 if len(items) < 50 else 2))
    elif kind == 4:
        items[at] = odd(choices)
    else:
        items[at] = changed(items[at], choices, depth + 1)
    return type(value)(items)


def _changed_tensor(value: Tensor, choices: Choices) -> Tensor:
    kind, flat = choices.below(8), value.detach().clone().reshape(-1)
    if kind == 0 and value.is_floating_point():
        return value.nan_to_num(0, 0, 0).to(choices.of(DTYPES))
    if kind == 1:
        return flat[: choices.below(len(flat) + 1)]
    if kind == 2:
        return value[None] if choices.below(2) else flat
    if kind == 3:
        return torch.cat([flat, flat[:1]])
    if kind == 4:
        return -flat if value.dtype not in (torch.bool, torch.uint8) else flat[:1]
    if kind == 5:
        return torch.zeros(choices.of(((), (0,), (1,), (2, 2), (0, *value.shape))), dtype=value.dtype)
    if len(flat):
        number = choices.of(SINGLES) if value.is_floating_point() else choices.of((0, 1, 2, 100))
        flat[choices.below(len(flat))] = number
    return flat.reshape(value.shape)


def _changed_bytes(value: bytes, choices: Choices) -> bytes:
    """Bits, residues of eight bytes, lengths; the first bytes, where labels stand, more often than others."""
    kind = choices.below(9)
    if not value or kind == 0:
        return choices.bytes(30)
    at = choices.below(min(len(value), 96)) if choices.below(2) else choices.below(len(value))
    if kind == 1:
        return value[:at]
    if kind == 2:
        return value + value[:at]
    if kind in (3, 4):
        words = bytearray(value)
        begin = at - at % 8
        words[begin : begin + 8] = choices.of((0, 1, 2**40, 2**54 - 1, 2**63, 2**64 - 1)).to_bytes(8, "little")[
            : len(words) - begin
        ]
        return bytes(words)
    if kind == 5:
        return value[:at] + choices.bytes(8) + value[at + 8 :]
    if kind == 6:
        return value[:at] + b"\0" * min(len(value) - at, 4096) + value[at + 4096 :]
    bit = 1 << choices.below(8)
    return value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :]


# ---------------------------------------------------------------- the codec's own form


def split(data: bytes) -> tuple[Any, bytes]:
    """(header's tree, body) of a message."""
    (length,) = struct.unpack("<I", data[4:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(tree: Any, body: bytes) -> bytes:
    header = json.dumps(tree, separators=(",", ":")).encode()
    return MAGIC + struct.pack("<I", len(header)) + header + body


NODES: tuple[Any, ...] = (
    {"t": "float32", "s": [1]},
    {"t": "float32", "s": [2**40]},
    {"t": "float32", "s": [0, 2**62]},
    {"t": "int64", "s": [-1]},
    {"t": "float32", "s": "x"},
    {"t": [], "s": []},
    {"a": "bool", "s": []},
    {"a": "uint8", "s": [1, 1, 1, 1, 1, 1, 1, 1, 1]},
    {"again": 0},
    {"again": -1},
    {"again": "0"},
    {"b": 0},
    {"b": -1},
    {"b": 1e3},
    {"b": True},
    {"l": []},
    {"l": {}},
    {"u": "xyz"},
    {"d": [[1, 2], [1, 3]]},
    {"d": [[{"l": []}, 1]]},
    {"d": [[1e308, 1]]},
    {"d": [[1]]},
    {"d": "ab"},
    {"m": "Hello", "f": {}},
    {"m": "Letter", "f": {"run": "", "kind": "", "receiver": "", "number": "", "answers": "", "body": None}},
    {"m": "Idle", "f": {}},
    {"m": "Refused", "f": {"x": 1}},
    {"m": "os:system", "f": {}},
    {"m": "covey.messages:encode", "f": {}},
    {"m": 5, "f": []},
    {"m": "Party"},
    {},
    [],
    None,
    1e400,
    10**4000,
    "x" * 500,
)


def changed_tree(tree: Any, choices: Choices, depth: int = 0) -> Any:
    """A JSON tree with a node exchanged, taken away, repeated, or nested in itself."""
    kind = choices.below(8)
    if kind == 7 or depth > 12 or not isinstance(tree, dict | list) or not tree:
        if isinstance(tree, int) and not isinstance(tree, bool) and choices.below(2):
            return choices.of((tree + 1, tree - 1, -tree, tree * 2**20, *NUMBERS[:-1]))
        if isinstance(tree, str) and choices.below(2):
            return choices.of(TEXTS)
        return choices.of(NODES)
    if kind == 6:
        nested: Any = tree
        for _ in range(choices.of((1, 3, 30, 900))):
            nested = {"l": [nested]} if choices.below(2) == 0 else [nested]
        return nested
    copy: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    at = choices.of(list(tree)) if isinstance(tree, dict) else choices.below(len(tree))
    if kind == 0:
        del copy[at]
    elif kind == 1 and isinstance(copy, list):
        copy[at:at] = [copy[at]] * choices.of((1, 2, 300))
    elif kind == 1:
        copy[choices.of(("t", "a", "b", "l", "u", "d", "m", "again", "f", "s"))] = copy[at]
    else:
        copy[at] = changed_tree(copy[at], choices, depth + 1)
    return copy


def changed_message(value: Any, choices: Choices) -> bytes:
    """The bytes of a message: another value well encoded, or the same one with another tree, body or byte."""
    for _ in range(1 + choices.below(3)):
        value = changed(value, choices)
    try:
        data = encode(value)
    except Exception:  # a value that no codec writes, such as a float16 that numpy refuses: its tree is changed instead
        data = encode(None)
    if choices.below(3):
        return data
    return changed_encoding(data, choices)


def changed_encoding(data: bytes, choices: Choices) -> bytes:
    tree, body = split(data)
    for _ in range(1 + choices.below(2) * (len(data) < 1 << 16)):
        tree = changed_tree(tree, choices)
    kind = choices.below(4)
    body = body + choices.bytes(9) if kind == 1 else body[: choices.below(len(body) + 1)] if kind == 2 else body
    try:
        return joined(tree, body)
    except (ValueError, RecursionError):  # nested deeper than our own writer can follow
        return MAGIC + struct.pack("<I", 40000) + b'{"l":[' * 5000 + body[:10000]
