"""What a GPU is spared of passes over its memory, which is what arithmetic on the vectors of a thousand clients costs.

A `Pending` vector is not computed before somebody looks at it. Whoever only adds it up over clients (`summed`) takes one pass, in
which those results of the same function that are kept are written, too. A `Doubt`, whether trained vectors are numbers, is answered
by any sum of them. Every number is rounded as torch has it; sums are float64, in an order of their own: they differ by 1e-15.
"""

from __future__ import annotations

import functools
import linecache
import math
import re
import warnings
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from typing import Any
from weakref import ReferenceType, ref
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from covey.errors import NotFinite
from covey.learn.kernels.pointwise import NotWritten, Pointwise, Written, is_fixed, written
from covey.learn.kernels.products import takes_triton

IN_ONE_PASS = Pointwise()
ROWS, COLUMNS, PARTS = 8, 256, 4  # of a tile, and into how many parts the clients are cut
ALIGNED = 32  # floats
DIFFERENCE, NEGATIVE = "__fsub_rn(v0, v1)", "(-v0)"  # texts of results
ROUNDING = 1e-9  # of a sum against the sum of its numbers' sizes: what another order may change, and far more


class Doubt:
    """Whether trained vectors are all numbers: NaN and infinities stay in any sum of them."""

    def __init__(self, vectors: Tensor, what: str, why: str) -> None:
        self._vectors: Tensor | None = vectors
        self._total: Tensor | None = None
        self._words = f"{what} gave values that are not finite: {why}"
        _DOUBTS[vectors] = self

    def answer(self, total: Tensor) -> None:
        """By a sum of numbers, each of which is one of these or was computed from it by +, − and ×; all of these are in it."""
        self._total, self._vectors = total, None

    def sum_up(self) -> None:
        """So that the vectors need not be kept; the device is not waited for."""
        if self._total is None:
            assert self._vectors is not None
            self.answer(self._vectors.sum())

    def check(self) -> None:
        self.sum_up()
        assert self._total is not None
        if not math.isfinite(float(self._total)):
            raise NotFinite(self._words)


_DOUBTS: Any = WeakTensorKeyDictionary()  # vectors -> Doubt
_READERS: Any = WeakTensorKeyDictionary()  # vectors -> a reference to what is put off and reads them


def answer(vectors: Tensor, total: Callable[[], Tensor]) -> None:
    """Answers the doubt about vectors, if there is one, by what they all went into."""
    doubt = _DOUBTS.get(vectors)
    if doubt is not None:
        doubt.answer(total())


class Pending(Tensor):
    """A vector of each client, [n, d], that is computed when somebody looks at it. Shape, type and device tell nothing."""

    _of: PutOff | None
    _place: int
    _value: Tensor | None

    @staticmethod
    def __new__(cls, of: PutOff, place: int) -> Pending:
        n, d, device = of.shape
        made: Pending = Tensor._make_wrapper_subclass(cls, (n, d), dtype=torch.float32, device=device)  # type: ignore[attr-defined]
        made._of, made._place, made._value = of, place, None
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        given, named = tree_map_only(Pending, Pending.value, (args, kwargs or {}))
        return func(*given, **named)

    # What torch answers without dispatching: it has no numbers of its own.

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        return self.value().numpy(force=force)

    def tolist(self) -> Any:
        return self.value().tolist()

    def data_ptr(self) -> int:
        return self.value().data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.value().untyped_storage()

    def __dlpack__(self, **how: Any) -> Any:
        return self.value().__dlpack__(**how)

    def __deepcopy__(self, known: dict[int, Any]) -> Tensor:
        return deepcopy(self.value(), known)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.value().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def keep(self) -> None:
        """It will be looked at: whoever passes over what it is computed from writes it."""
        if self._of is not None:
            self._of.kept.add(self._place)

    def value(self) -> Tensor:
        if self._value is None:
            assert self._of is not None
            self._become(self._of.values()[self._place])
        assert self._value is not None
        return self._value

    def _become(self, value: Tensor) -> None:
        self._value, self._of = value, None  # what it was computed from may go

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Pending({'not computed' if self._value is None else self._value})"


def settled(vectors: Tensor) -> Tensor:
    return vectors.value() if isinstance(vectors, Pending) else vectors


def in_rows(vectors: Tensor, n: int) -> Tensor:
    """[n, d], pending or not; [d] and [1, d] are those of all n."""
    return vectors if isinstance(vectors, Pending) else vectors.expand(n, -1)


def cut(vectors: Tensor, start: int, stop: int) -> Tensor:
    """The rows of some clients; of all of them, what is pending stays so."""
    whole = isinstance(vectors, Pending) and start == 0 and stop >= len(vectors)
    return vectors if whole else vectors[start:stop]


def kept(vectors: Tensor, n: int) -> Tensor:
    """`in_rows` of what will be looked at."""
    if isinstance(vectors, Pending):
        vectors.keep()
    return in_rows(vectors, n)


def difference(vectors: Tensor) -> tuple[Tensor, Tensor | None]:
    """Two vectors [n, d] whose difference these are, where they are pending and nothing else; or these, and None."""
    if isinstance(vectors, Pending) and vectors._of is not None:
        one = vectors._of
        if one.text.results[vectors._place] == DIFFERENCE and len(one.arguments) == 2:
            minuend, subtrahend = (in_rows(argument, one.shape[0]) for argument in one.arguments)
            if minuend.shape == subtrahend.shape == one.shape[:2]:
                return minuend, subtrahend
    return settled(vectors), None


def less(vectors: Tensor, shared: Tensor) -> Tensor | None:
    """vectors + shared, pending as shared − v, where the vectors are pending and nothing but −v [n, d]; None: they are not."""
    if not isinstance(vectors, Pending) or vectors._of is None or shared.shape != (1, vectors.shape[1]):
        return None
    one = vectors._of
    if one.text.results[vectors._place] != NEGATIVE or len(one.arguments) != 1:
        return None
    later: Tensor | None = put_off(torch.sub, (shared, one.arguments[0]))
    return later


def waits(device: torch.device) -> bool:
    """Whether anything is put off there: without a kernel for the pass nothing would be spared."""
    return takes_triton(device)


def put_off(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What the function gives of vectors [n, d], [1, d] or [n, 1] and numbers, pending; None: it cannot be put off.

    Until then nobody may write to the vectors that it was given.
    """
    try:
        one = PutOff(function, arguments)
    except NotWritten:
        return None
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.shape == one.shape[:2]:
            _READERS[argument] = ref(one)
    results = tuple(Pending(one, place) for place in range(len(one.text.results)))
    one.results = [ref(result) for result in results]
    return results if one.text.is_tuple else results[0]


def summed(vectors: Tensor, weights: NDArray[np.float64]) -> Tensor | None:
    """The sum over clients, float64 [d], of vectors that are pending or that something pending reads, each times its client's
    weight. None: they are to be summed as they are.
    """
    if isinstance(vectors, Pending):
        return None if vectors._of is None else vectors._of.sum_of(vectors._place, weights)
    reader = _READERS.get(vectors)
    one = None if reader is None else reader()
    return None if one is None or not one.kept else one.sum_of(vectors, weights)


class PutOff:
    """A function of vectors that was asked for, and not yet computed."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if not is_fixed(function):
            raise NotWritten("what it computes may change")
        self.text = written(function, arguments)
        self._function, self.arguments = function, arguments
        self._vectors = [a for a in arguments if isinstance(a, Tensor)]
        n, d = (max(v.shape[axis] for v in self._vectors) for axis in (0, 1))
        if any(v.dtype != torch.float32 or (v.shape[1] > 1 and v.stride(1) != 1) for v in self._vectors):
            raise NotWritten("its numbers do not lie side by side")
        self.shape = (n, d, self._vectors[0].device)
        self.kept: set[int] = set()
        self.results: list[ReferenceType[Pending]] = []
        self._sums: dict[tuple[str, bytes], Tensor] = {}

    def values(self) -> tuple[Tensor, ...]:
        """All of them; those that nobody has any more are computed with the others."""
        given = IN_ONE_PASS if self.shape[2].type == "cuda" else lambda function, arguments: function(*arguments)
        values = given(self._function, self.arguments)
        values = values if isinstance(values, tuple) else (values,)
        whole = tuple(value.expand(self.shape[0], -1) for value in values)
        for result, value in zip(self.results, whole):
            if (pending := result()) is not None and pending._value is None:
                pending._become(value)
        return whole

    def sum_of(self, what: int | Tensor, weights: NDArray[np.float64]) -> Tensor | None:
        """Of a result, or of a vector that was given; None: there is no kernel for it."""
        if isinstance(what, int):
            texts = [text for place, text in enumerate(self.text.results) if place not in self.kept]
            wanted = self.text.results[what]
        else:
            wanted = next(f"v{i}" for i, vector in enumerate(self._vectors) if vector is what)
            texts = [wanted]
        if wanted not in texts:
            return None
        at = (wanted, weights.tobytes())
        if at not in self._sums:
            kept = tuple(p for p in sorted(self.kept) if (one := self.results[p]()) is not None and one._value is None)
            passed = _pass(self.text, self.arguments, kept, tuple(dict.fromkeys(texts)), weights, self._function)
            if passed is None:
                return None
            written_ones, sums = passed
            for place, value in zip(kept, written_ones):
                pending = self.results[place]()
                if pending is not None:
                    pending._become(value)
            for text, total in zip(dict.fromkeys(texts), sums):
                self._sums[text, at[1]] = total
                self._answer(text, total)
        return self._sums[at]

    def _answer(self, text: str, total: Tensor) -> None:
        for i, vector in enumerate(self._vectors):
            if vector.shape == self.shape[:2] and re.search(rf"\bv{i}\b", text):
                answer(vector, total.sum)


# ---------------------------------------------------------------- the pass


def _pass(
    text: Written,
    arguments: tuple[Any, ...],
    kept: tuple[int, ...],
    texts: tuple[str, ...],
    weights: NDArray[np.float64],
    function: Callable[..., Any],
) -> tuple[list[Tensor], Tensor] | None:
    """The kept results [n, d] each, and the weighted sums over clients of these texts, [t, d]; None: no kernel does it here."""
    vectors = [a for a in arguments if isinstance(a, Tensor)]
    shapes = tuple((len(v) > 1, v.shape[1] > 1) for v in vectors)
    key = (text, shapes, kept, texts)
    if key in _KERNELS and _KERNELS[key] is None:
        return None
    if not takes_triton(vectors[0].device):
        return None
    try:
        kernel = _KERNELS.get(key) or _compiled(source(*key))
        results = _launched(kernel, vectors, arguments, kept, len(texts), weights)
        if key not in _KERNELS:
            _KERNELS[key] = kernel if _is_right(text, arguments, kept, texts, weights, function, results) else None
    except Exception as error:  # Triton has many of its own
        warnings.warn(f"no kernel for sums of arithmetic on vectors, which takes longer: {error}", stacklevel=2)
        _KERNELS[key] = None
    return None if _KERNELS[key] is None else results


_KERNELS: dict[tuple[Any, ...], Any] = {}  # None: what it gave was not right, or there is none


def _launched(
    kernel: Any,
    vectors: list[Tensor],
    arguments: tuple[Any, ...],
    kept: tuple[int, ...],
    count: int,
    weights: NDArray[np.float64],
) -> tuple[list[Tensor], Tensor]:
    n, d = (max(v.shape[axis] for v in vectors) for axis in (0, 1))
    device, aligned = vectors[0].device, -(-d // ALIGNED) * ALIGNED
    # Rows that begin at multiples of ALIGNED floats are read several floats at a time, with what lies behind their end.
    width = aligned if all(_has_room(v, aligned) for v in vectors if v.shape == (n, d)) else d
    given = [pad(v, (0, width - d)) if v.shape == (1, d) and width > d else v for v in vectors]
    outputs = [torch.empty(n, aligned, device=device) for _ in kept]
    sums = torch.empty(PARTS, count, width, dtype=torch.float64, device=device)
    numbers = [float(a) for a in arguments if not isinstance(a, Tensor)]
    rows = -(-n // (PARTS * ROWS)) * ROWS  # of a part
    grid = (-(-width // COLUMNS), PARTS)
    kernel[grid](
        *given, *[v.stride(0) for v in given], *numbers, *outputs, _on(weights.tobytes(), device), sums, n, width, aligned, rows,
        ROWS, COLUMNS, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return [one[:, :d] for one in outputs], sums.sum(0)[:, :d]


def _has_room(vectors: Tensor, width: int) -> bool:
    """Whether rows may be read up to this width: what lies behind their end is theirs."""
    n, row, first = len(vectors), vectors.stride(0), vectors.storage_offset()
    inside = 4 * (first + (n - 1) * row + width) <= vectors.untyped_storage().nbytes()
    return row >= width and row % ALIGNED == 0 and first % ALIGNED == 0 and inside


@functools.lru_cache(maxsize=8)
def _on(weights: bytes, device: torch.device) -> Tensor:
    """Weights mostly stay from round to round."""
    return torch.from_numpy(np.frombuffer(weights, np.float64).copy()).to(device)


def _is_right(
    text: Written,
    arguments: tuple[Any, ...],
    kept: tuple[int, ...],
    texts: tuple[str, ...],
    weights: NDArray[np.float64],
    function: Callable[..., Any],
    results: tuple[list[Tensor], Tensor],
) -> bool:
    """Against torch, once for each function."""
    expected = function(*arguments)
    expected = expected if isinstance(expected, tuple) else (expected,)
    vectors = [a for a in arguments if isinstance(a, Tensor)]
    known = dict(zip(text.results, expected)) | {f"v{i}": v for i, v in enumerate(vectors)}
    n, d = (max(v.shape[axis] for v in vectors) for axis in (0, 1))
    share = _on(weights.tobytes(), vectors[0].device)[:, None]
    same = all(torch.equal(value, expected[place].expand(n, d)) for place, value in zip(kept, results[0]))
    for one, total in zip(texts, results[1]):
        numbers = known[one].expand(n, d).double() * share
        room = ROUNDING * numbers.abs().sum(0) + 1e-300
        same = same and bool(((numbers.sum(0) - total).abs() <= room).all())
    return same


def source(text: Written, shapes: tuple[tuple[bool, bool], ...], kept: tuple[int, ...], texts: tuple[str, ...]) -> str:
    """The kernel in Triton's Python. `shapes`: of each vector, whether it has a row for each client, a column for each number."""
    given = range(text.vectors)
    parameters = [f"v{i}" for i in given] + [f"row{i}" for i in given] + [f"n{i}" for i in range(text.numbers)]
    parameters += [f"out{p}" for p in kept] + ["weights", "sums", "n", "d", "out_row", "part"]
    parameters += ["ROWS: tl.constexpr", "COLUMNS: tl.constexpr"]
    before, inside = [], []
    for i, (has_rows, has_columns) in enumerate(shapes):
        if not has_rows:
            place, mask = (f"v{i} + columns", "inside") if has_columns else (f"v{i} + columns * 0", "inside")
            before.append(f"x{i} = tl.load({place}, mask={mask}, other=0.0)[None, :]")
        elif has_columns:
            inside.append(f"x{i} = tl.load(v{i} + rows[:, None] * row{i} + columns[None, :], mask=both, other=0.0)")
        else:
            inside.append(f"x{i} = tl.load(v{i} + rows * row{i}, mask=there, other=0.0)[:, None]")
    for p in kept:
        inside.append(
            f"tl.store(out{p} + rows[:, None] * out_row + columns[None, :], {_as_triton(text.results[p])}, mask=both)"
        )
    for t, one in enumerate(texts):
        before.append(
            f"t{t} = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)"
        )  # over rows only at the end: warps hold some each
        numbers = f"tl.where(both, {_as_triton(one)}, 0.0)"
        inside.append(f"t{t} += {numbers}.to(tl.float64) * weight[:, None]")
    stores = [
        f"tl.store(sums + (tl.program_id(1) * {len(texts)} + {t}) * d + columns, tl.sum(t{t}, axis=0), mask=inside)"
        for t in range(len(texts))
    ]
    lines = [
        "@triton.jit\ndef _add(a, b):\n    return a + b\n",
        "@triton.jit\ndef _sub(a, b):\n    return a - b\n",
        "@triton.jit\ndef _mul(a, b):\n    return a * b\n",
        f"@triton.jit\ndef one_pass({', '.join(parameters)}):",
        "    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)",
        "    inside = columns < d",
        *[f"    {line}" for line in before],
        "    begin = tl.program_id(1) * part",
        "    end = tl.minimum(begin + part, n)",
        "    for first in range(begin, end, ROWS):",
        "        rows = (first + tl.arange(0, ROWS)).to(tl.int64)",
        "        there = rows < end",
        "        both = there[:, None] & inside[None, :]",
        "        weight = tl.load(weights + rows, mask=there, other=0.0)",
        *[f"        {line}" for line in inside],
        *[f"    {line}" for line in stores],
    ]
    return "\n".join(lines) + "\n"


def _as_triton(text: str) -> str:
    """CUDA's text of a result: functions of two numbers, minus, vectors v and numbers n, the latter already rounded to floats."""
    calls = re.sub(r"__f(add|sub|mul)_rn\(", r"_\1(", text.replace("float(", "("))
    return re.sub(r"\bv(\d+)\b", r"x\1", calls)


def _compiled(code: str) -> Any:
    """Triton reads the text of a function, so it must be where Python looks for it."""
    triton, tl = (import_module(name) for name in ("triton", "triton.language"))  # only where there is a GPU
    name = f"<covey pass {crc32(code.encode()):08x}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    place: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(code, name, "exec"), place)
    return place["one_pass"]
