"""The codec: what goes in comes out, and nothing that `encode` cannot have written gets in."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import textwrap
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.algorithms.averaging import LocalModel
from covey.algorithms.scaffold import ControlledModel
from covey.crypto.signatures import Envelope
from covey.errors import CoveyError
from covey.messages import MAGIC, copied, decode, encode, message, same, size


@message
@dataclass(frozen=True)
class Parcel:
    model: torch.Tensor
    sealed: bytes
    label: str
    counts: tuple[int, ...]


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text() | st.binary()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.lists(inner).map(tuple),
    max_leaves=12,
)


@given(TREES)
def test_any_tree_survives_and_its_size_is_known(tree: Any) -> None:
    raw = encode(tree)
    assert decode(raw) == tree
    assert size(tree) == len(raw)


def test_messages_keep_types_shapes_and_bits() -> None:
    parcel = Parcel(torch.randn(3, 5), b"\x00\xff", "ĵ", (1, 2))
    back = decode(encode(parcel))
    assert isinstance(back, Parcel)
    assert torch.equal(back.model, parcel.model)
    assert (back.sealed, back.label, back.counts) == (parcel.sealed, parcel.label, parcel.counts)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "uint64", "bool"])
def test_arrays_of_every_kind(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    back = decode(encode({"a": array, "t": torch.zeros(0, 4)}))
    assert back["a"].dtype == array.dtype and np.array_equal(back["a"], array)
    assert back["t"].shape == (0, 4)


def _raw(tree: Any, body: bytes = b"") -> bytes:
    header = json.dumps(tree).encode()
    return MAGIC + struct.pack("<I", len(header)) + header + body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense",
        MAGIC + struct.pack("<I", 10**9),
        _raw({"t": "float32", "s": [10**12]}),  # announces 4 TB: refused before any of it is allocated
        _raw({"t": "float32", "s": [-1]}),
        _raw({"t": "object", "s": [1]}, b"12345678"),
        _raw({"t": "float32", "s": [2**62, 2**62]}),
        _raw({"b": -5}, b"12345678"),
        _raw({"m": "os.system", "f": {}}),
        _raw({"m": "Parcel", "f": {"model": 1}}),
        _raw({"l": 7}),
        _raw({"b": 2}, b"123"),  # one byte too many
        _raw([1, 2]),
    ],
)
def test_what_no_encoder_wrote_is_refused(raw: bytes) -> None:
    with pytest.raises(CoveyError):
        decode(raw)


def test_deep_nesting_is_refused() -> None:
    tree: Any = 1
    for _ in range(60):
        tree = {"l": [tree]}
    with pytest.raises(CoveyError, match="nested"):
        decode(_raw(tree))


@given(st.binary(max_size=200))
def test_random_bytes_never_crash(raw: bytes) -> None:
    for data in (raw, MAGIC + raw, encode({"x": np.arange(5)})[: len(raw)]):
        with pytest.raises(CoveyError):
            decode(data)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_one_altered_byte_is_refused_or_still_a_message(position: int, value: int) -> None:
    raw = bytearray(encode(Parcel(torch.ones(4), b"abc", "x", (1,))))
    raw[position % len(raw)] = value
    with contextlib.suppress(CoveyError):
        decode(bytes(raw))


def test_what_cannot_cross_the_wire_is_named() -> None:
    with pytest.raises(CoveyError, match="set cannot cross the wire"):
        encode({1, 2})
    with pytest.raises(CoveyError, match="complex128"):
        encode(np.zeros(2, complex))


# ---------------------------------------------------------------- names on the wire


def defined(module: str, name: str = "Reply", decorate: Any = message) -> Any:
    """A message class of another package."""
    cls = type(name, (), {"__module__": module, "__qualname__": name, "__annotations__": {"value": int}})
    return decorate(dataclass(frozen=True)(cls))


def test_messages_of_two_packages_never_collide() -> None:
    one, two = defined("one.protocol"), defined("two.protocol")
    assert type(decode(encode(one(1)))) is one and type(decode(encode(two(2)))) is two
    assert b'"one.protocol:Reply"' in encode(one(1))
    with pytest.raises(CoveyError, match=r"'Reply', which is one of one\.protocol:Reply, two\.protocol:Reply"):
        decode(_raw({"m": "Reply", "f": {"value": 1}}))


def test_covey_s_own_cross_under_their_bare_names() -> None:
    from covey.algorithms.averaging import LocalModel

    assert b'{"m":"LocalModel"' in encode(LocalModel(torch.ones(2), 1))
    with pytest.raises(CoveyError, match="two messages are called LocalModel"):
        defined("covey.algorithms.elsewhere", "LocalModel")


def test_a_state_that_was_written_before_opens() -> None:
    only = defined("three.protocol", "OnlyThree")
    assert decode(_raw({"m": "OnlyThree", "f": {"value": 3}})) == only(3)
    renamed = defined("three.protocol", "Renamed", message(also=("FormerName",)))
    assert decode(_raw({"m": "FormerName", "f": {"value": 4}})) == renamed(4)
    assert b"FormerName" not in encode(renamed(4))
    with pytest.raises(CoveyError, match="two messages are called FormerName"):
        defined("four.protocol", "Other", message(also=("FormerName",)))


def test_an_unknown_kind_is_never_imported() -> None:
    with pytest.raises(CoveyError, match="unknown kind 'this:x': import 'this' first"):
        decode(_raw({"m": "this:x", "f": {}}))
    assert "this" not in sys.modules


def test_a_class_defined_anew_takes_the_place_of_the_former() -> None:
    former, anew = defined("notebook"), defined("notebook")
    assert type(decode(encode(anew(1)))) is anew
    with pytest.raises(CoveyError, match="cannot cross the wire"):
        encode(former(1))


def test_covey_s_own_are_read_before_their_module_was_needed() -> None:
    script = """
        import sys
        from covey.messages import _KINDS, _own_kinds, decode
        raw = bytes.fromhex(sys.argv[1])
        assert "covey.algorithms.ifca" not in sys.modules
        assert type(decode(raw)).__name__ == "ClusterUpdate"
        for name, module in _own_kinds().items():
            __import__(module)
            assert _KINDS[name].__module__ == module
        assert {n for n, c in _KINDS.items() if c.__module__.startswith("covey.")} == set(_own_kinds())
    """
    from covey.algorithms.ifca import ClusterUpdate

    raw = encode(ClusterUpdate(torch.ones(2), 1, 3)).hex()
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), raw], check=True)


def test_a_copy_has_memory_of_its_own_and_only_what_it_shows() -> None:
    batch = torch.arange(12.0).reshape(4, 3)
    tree: dict[str, Any] = {"rows": [batch[1], np.ones(2)], "more": (b"bytes", 3)}
    copy = copied(tree)
    assert encode(copy) == encode(tree)
    copy["rows"][0].fill_(9)
    copy["rows"][1][:] = 9
    assert batch[1].tolist() == [3, 4, 5] and tree["rows"][1].tolist() == [1, 1]
    assert copy["rows"][0].untyped_storage().nbytes() == 12  # the row's, not the batch's


def test_size_does_not_touch_the_data() -> None:
    """A tensor without memory has a size: what is on a GPU is not fetched to be counted."""
    shape = LocalModel(torch.zeros(3, 5), 7)
    assert size(replace(shape, model=torch.empty(3, 5, device="meta"))) == len(encode(shape))


def test_the_size_of_a_message_is_that_of_its_bytes_whatever_came_before() -> None:
    shared, long = torch.zeros(3), bytes(2000)
    messages = [
        LocalModel(torch.zeros(3), 1),
        LocalModel(torch.zeros(3), 10),
        LocalModel(torch.zeros(30), 10),
        LocalModel(torch.zeros(3, dtype=torch.float64), 1),
        LocalModel(torch.zeros(3), -0.0),  # type: ignore[arg-type]
        LocalModel(torch.zeros(3), 0.0),  # type: ignore[arg-type]
        LocalModel(torch.zeros(3), True),
        ControlledModel(shared, shared),
        ControlledModel(shared, shared.clone()),
        Envelope("client:1", "upload", 9, 0, b"", b"1234", b""),
        Envelope("client:2", "upload", 8, 0, b"", b"4321", b""),
        Envelope("client:2", "upload", 10, 0, b"", b"4321", b""),
        Envelope('client "2"', "up\\load", 10, 0, b"", b"4321", b""),
        Envelope("client ä 2", "up\nload", 10, 0, b"", b"4321", b""),
        Envelope("client a 2", "up nload", -10, 0, b"", long, bytes(2000)),
        Envelope("client a 2", "up nload", -10, 0, b"", long, long),
    ]
    for _ in range(2):
        assert [size(m) for m in messages] == [len(encode(m)) for m in messages]


def test_items_of_a_list_are_read_one_at_a_time() -> None:
    shared = torch.randn(5)
    for items in ([shared, shared, 3], [shared, torch.randn(4), [shared.clone()]], []):
        answer = decode(encode({"ticket": 7, "ok": items}), lazily=True)
        assert answer["ticket"] == 7
        assert same(list(answer["ok"]), items)
    assert decode(encode({"ok": [1], "last": 2}), lazily=True) == {"ok": [1], "last": 2}
    assert decode(encode([1, 2]), lazily=True) == [1, 2]


def test_an_item_that_was_read_is_not_kept() -> None:
    items = decode(encode({"ok": [torch.randn(5), torch.randn(5)]}), lazily=True)["ok"]
    first = weakref.ref(next(items))
    assert next(items) is not None
    assert first() is None


def test_what_a_list_leaves_unread_is_refused() -> None:
    with pytest.raises(CoveyError, match="its header does not mention"):
        list(decode(encode({"ok": [torch.randn(5)]}) + b"more", lazily=True)["ok"])
