"""One pass over the vectors of many clients: results of a function are written, and others only added up, by a kernel that is made
for it (Triton).
"""

from __future__ import annotations

import functools
import linecache
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.learn.kernels.products import takes_triton
from covey.learn.kernels.vectors.pointwise import Written

ROWS, COLUMNS, PARTS = (
    4,
    256,
    8,
)  # of a tile, and into how many parts the clients are cut: as measured on an H200, 1,000 × 159,010
ALIGNED = 32  # floats
ROUNDING = 1e-9  # of a sum against the sum of its numbers' sizes: what another order may change, and far more
_KERNELS: dict[tuple[Any, ...], Any] = {}  # None: what it gave was not right, or there is none


@dataclass(frozen=True)
class Pass:
    """What is asked of one: which results of a function are kept, and of which texts (results, or vectors v0 …) sums are wanted."""

    function: Callable[..., Any]
    text: Written  # the function's
    arguments: tuple[Any, ...]  # vectors [n, d], [1, d] or [n, 1], and numbers
    kept: tuple[int, ...]
    texts: tuple[str, ...]
    weights: NDArray[np.float64]  # [n] of the clients, in sums

    def run(self) -> tuple[list[Tensor], Tensor] | None:
        """The kept results [n, d] each, and the weighted sums over clients of the texts, [t, d]; None: no kernel does it here."""
        key = (self.text, self._sides, self.kept, self.texts)
        if not takes_triton(self._device) or _KERNELS.get(key, "new") is None:
            return None
        try:
            kernel = _KERNELS.get(key) or _compiled(self.source())
            results = self._launched(kernel)
            if key not in _KERNELS:
                _KERNELS[key] = kernel if self._is_right(*results) else None
        except Exception as error:  # Triton has many of its own
            warnings.warn(f"no kernel for sums of arithmetic on vectors, which takes longer: {error}", stacklevel=2)
            _KERNELS[key] = None
        return None if _KERNELS[key] is None else results

    @cached_property
    def _vectors(self) -> list[Tensor]:
        return [a for a in self.arguments if isinstance(a, Tensor)]

    @property
    def _device(self) -> torch.device:
        return self._vectors[0].device

    @property
    def _shape(self) -> tuple[int, int]:
        return max(len(v) for v in self._vectors), max(v.shape[1] for v in self._vectors)

    @property
    def _sides(self) -> tuple[tuple[bool, bool], ...]:
        """Of each vector, whether it has a row for each client, a column for each number."""
        return tuple((len(v) > 1, v.shape[1] > 1) for v in self._vectors)

    def _launched(self, kernel: Any) -> tuple[list[Tensor], Tensor]:
        (n, d), device = self._shape, self._device
        aligned = -(-d // ALIGNED) * ALIGNED
        # Rows that begin at multiples of ALIGNED floats are read several floats at a time, with what lies behind their end.
        width = aligned if all(_has_room(v, aligned) for v in self._vectors if v.shape == (n, d)) else d
        given = [_with_room(v, width) if v.shape == (1, d) and width > d else v for v in self._vectors]
        outputs = [torch.empty(n, aligned, device=device) for _ in self.kept]
        sums = torch.empty(PARTS, len(self.texts), width, dtype=torch.float64, device=device)
        numbers = [float(a) for a in self.arguments if not isinstance(a, Tensor)]
        rows = -(-n // (PARTS * ROWS)) * ROWS  # of a part
        grid = (-(-width // COLUMNS), PARTS)
        kernel[grid](
            *given, *[v.stride(0) for v in given], *numbers, *outputs, _on(self.weights.tobytes(), device), sums, n, width,
            aligned, rows, ROWS, COLUMNS, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
        return [one[:, :d] for one in outputs], sums.sum(0)[:, :d]

    def _is_right(self, written: list[Tensor], sums: Tensor) -> bool:
        """Against torch, once for each function."""
        expected = self.function(*self.arguments)
        expected = expected if isinstance(expected, tuple) else (expected,)
        known = dict(zip(self.text.results, expected)) | {f"v{i}": v for i, v in enumerate(self._vectors)}
        n, d = self._shape
        share = _on(self.weights.tobytes(), self._device)[:, None]
        same = all(torch.equal(value, expected[place].expand(n, d)) for place, value in zip(self.kept, written))
        for text, total in zip(self.texts, sums):
            numbers = known[text].expand(n, d).double() * share
            room = ROUNDING * numbers.abs().sum(0) + 1e-300
            same = same and bool(((numbers.sum(0) - total).abs() <= room).all())
        return same

    def source(self) -> str:
        """The kernel in Triton's Python."""
        given = range(self.text.vectors)
        parameters = [f"v{i}" for i in given] + [f"row{i}" for i in given] + [f"n{i}" for i in range(self.text.numbers)]
        parameters += [f"out{p}" for p in self.kept] + ["weights", "sums", "n", "d", "out_row", "part"]
        parameters += ["ROWS: tl.constexpr", "COLUMNS: tl.constexpr"]
        before, inside = [], []
        for i, (has_rows, has_columns) in enumerate(self._sides):
            if not has_rows:
                place, mask = (f"v{i} + columns", "inside") if has_columns else (f"v{i} + columns * 0", "inside")
                before.append(f"x{i} = tl.load({place}, mask={mask}, other=0.0)[None, :]")
            elif has_columns:
                inside.append(f"x{i} = tl.load(v{i} + rows[:, None] * row{i} + columns[None, :], mask=both, other=0.0)")
            else:
                inside.append(f"x{i} = tl.load(v{i} + rows * row{i}, mask=there, other=0.0)[:, None]")
        for p in self.kept:
            inside.append(
                f"tl.store(out{p} + rows[:, None] * out_row + columns[None, :], {_as_triton(self.text.results[p])}, mask=both)"
            )
        for t, one in enumerate(self.texts):
            before.append(
                f"t{t} = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)"
            )  # over rows only at the end: warps hold some each
            numbers = f"tl.where(both, {_as_triton(one)}, 0.0)"
            inside.append(f"t{t} += {numbers}.to(tl.float64) * weight[:, None]")
        stores = [
            f"tl.store(sums + (tl.program_id(1) * {len(self.texts)} + {t}) * d + columns, tl.sum(t{t}, axis=0), mask=inside)"
            for t in range(len(self.texts))
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


def _has_room(vectors: Tensor, width: int) -> bool:
    """Whether rows may be read up to this width: what lies behind their end is theirs."""
    n, row, first = len(vectors), vectors.stride(0), vectors.storage_offset()
    inside = 4 * (first + (n - 1) * row + width) <= vectors.untyped_storage().nbytes()
    return row >= width and row % ALIGNED == 0 and first % ALIGNED == 0 and inside


def _with_room(vector: Tensor, width: int) -> Tensor:
    """The one row with memory up to this width behind it. Nothing is written there: a launch less, and nobody reads its results."""
    room = vector.new_empty(1, width)
    room[:, : vector.shape[1]] = vector
    return room


@functools.lru_cache(maxsize=8)
def _on(weights: bytes, device: torch.device) -> Tensor:
    """Weights mostly stay from round to round."""
    return torch.from_numpy(np.frombuffer(weights, np.float64).copy()).to(device)


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
