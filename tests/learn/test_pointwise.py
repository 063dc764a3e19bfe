"""Arithmetic written down for a GPU is the arithmetic that torch does, rounding for rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.algorithms.feddyn import _gradient
from covey.algorithms.scaffold import _first, _next
from covey.learn.kernels.vectors.pointwise import NotWritten, Pointwise, Written, is_fixed, written

VECTORS = [torch.randn(257, generator=torch.Generator().manual_seed(i)) for i in range(4)]
OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (_first, (*VECTORS[:3], -12.3)),
    (_next, (*VECTORS, -1 / 0.03)),
    (_gradient, (*VECTORS[:3], 0.1)),
    (torch.neg, (VECTORS[0],)),
    (torch.sub, (VECTORS[0], VECTORS[1])),
    (lambda x, a: 2 * x * (1 - a) + 0.1, (VECTORS[0], 0.3)),
]


def as_numpy(one: Written, arguments: tuple[Any, ...]) -> list[Any]:
    """What the text means, operation by operation in float32."""
    meaning: dict[str, Any] = {f"__f{name}_rn": function for name, function in OPERATIONS.items()} | {
        "float": np.float32
    }
    vectors = iter(a.numpy() for a in arguments if isinstance(a, Tensor))
    numbers = iter(float(a) for a in arguments if not isinstance(a, Tensor))
    meaning |= {f"v{i}": next(vectors) for i in range(one.vectors)}
    meaning |= {f"n{i}": next(numbers) for i in range(one.numbers)}
    return [eval(text, meaning) for text in one.results]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_text_means_what_torch_computes(case: int) -> None:
    function, arguments = CASES[case]
    expected = function(*arguments)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, right in zip(as_numpy(written(function, arguments), arguments), expected, strict=True):
        assert np.array_equal(got, right.numpy())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.add_(1),  # the caller's own vector
        lambda x: x / 2,
        lambda x: x.sum(),
        torch.exp,
        lambda x: x if x > 0 else -x,
        lambda x: 3.0,
        lambda x: torch.add(x, x, alpha=2),
    ],
)
def test_what_cannot_be_written_down_is_said_to_be_so(function: Callable[..., Any]) -> None:
    with pytest.raises(NotWritten):
        written(function, (VECTORS[0],))


FACTOR = 2.0


def scaled(x: Tensor) -> Tensor:
    return x * FACTOR  # may be another tomorrow


def test_only_functions_that_stay_the_same_are_compiled_once() -> None:
    rate = 0.5
    assert all(map(is_fixed, (_first, _next, _gradient, torch.neg, torch.sub)))
    assert not any(map(is_fixed, (scaled, lambda x: x * rate, VECTORS[0].add, lambda x, a=2: x * a)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", range(len(CASES)))
def test_on_a_gpu_to_the_bit(case: int) -> None:
    function, given = CASES[case]
    rows = torch.rand(5, 320, device="cuda")[:, :257]  # one whose rows do not lie side by side
    arguments = tuple(a.cuda()[None] if isinstance(a, Tensor) else a for a in given)
    arguments = (rows, *arguments[1:])
    taken = Pointwise()
    for _ in range(2):  # torch's own, then the compiled one
        got, expected = taken(function, arguments), function(*arguments)
        pairs = zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
        assert all(torch.equal(a, b) for a, b in pairs)
    assert all(compiled is not None for compiled in taken._known.values())
