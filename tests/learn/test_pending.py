"""Vectors that wait until somebody looks at them are what they would have been, and a doubt is answered by any sum."""

from __future__ import annotations

import gc
import pickle
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.algorithms.feddyn import _gradient
from covey.algorithms.scaffold import _first, _next
from covey.errors import NotFinite
from covey.learn.flat import Network
from covey.learn.kernels.vectors import doubts
from covey.learn.kernels.vectors.doubts import Doubt
from covey.learn.kernels.vectors.pending import Pending, cut, difference, kept, less, put_off, settled, summed
from covey.learn.machine import Machine
from covey.learn.rowwise import add_to_groups
from covey.learn.work import Bundle, Plan, Train
from covey.randomness import Streams

CLIENTS, SIZE = 5, 257


def vectors(device: str = "cpu") -> list[Tensor]:
    """y and c_i, whose rows do not lie side by side; x and c, which clients share; a number of each client."""
    generator = torch.Generator().manual_seed(0)
    y, c_i = (torch.randn(CLIENTS, SIZE + 63, generator=generator).to(device)[:, :SIZE] for _ in range(2))
    x, c = (torch.randn(1, SIZE, generator=generator).to(device) for _ in range(2))
    return [y, x, c, c_i, torch.rand(CLIENTS, 1, generator=generator).to(device)]


def _both_changes(y: Tensor, x: Tensor, c: Tensor, c_i: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """Two vectors to be added up, and one to be kept."""
    moved, change = _first(y, x, c, scale)
    return moved, change, c_i + change


def cases(device: str = "cpu") -> list[tuple[Callable[..., Any], tuple[Any, ...], int]]:
    """Function, arguments, and which of its results is kept."""
    y, x, c, c_i, scale = vectors(device)
    return [
        (_next, (y, x, c, c_i, -12.3), 1),
        (_next, (y, x, c, c_i, scale), 1),
        (_first, (y, x, c, scale), 1),
        (_gradient, (y, x, c_i, 0.1), 0),
        (_both_changes, (y, x, c, c_i, scale), 2),
    ]


def as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("case", range(5))
def test_whoever_looks_gets_what_the_function_gives(case: int) -> None:
    function, arguments, _ = cases()[case]
    expected, later = as_tuple(function(*arguments)), as_tuple(put_off(function, arguments))
    assert all(isinstance(one, Pending) and one.shape == (CLIENTS, SIZE) for one in later)
    assert all(one._value is None for one in later)
    looks: list[Callable[[Tensor], Any]] = [
        lambda v: v[0],
        lambda v: v.unbind(0)[-1],
        lambda v: torch.stack([v, v]),
        lambda v: v + 1,
        lambda v: v.cpu().numpy().sum(),
        deepcopy,
        lambda v: pickle.loads(pickle.dumps(v)),
        np.from_dlpack,
    ]
    for look in looks:
        for one, right in zip(put_off_again(function, arguments), expected, strict=True):
            assert np.array_equal(np.asarray(look(one)), np.asarray(look(right)))


def put_off_again(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return as_tuple(put_off(function, arguments))


def test_what_is_computed_keeps_nothing_that_it_was_computed_from() -> None:
    function, arguments, place = cases()[0]
    results = put_off(function, arguments)
    settled(results[place])
    assert all(result._of is None for result in results)


def test_functions_whose_text_may_change_are_not_put_off() -> None:
    factor = 2.0
    assert put_off(lambda x: x * factor, (vectors()[0],)) is None
    assert put_off(torch.exp, (vectors()[0],)) is None


def test_sums_are_those_of_the_vectors_where_there_is_no_kernel() -> None:
    function, arguments, _ = cases()[-1]
    moved, change, variate = put_off(function, arguments)
    kept(variate, CLIENTS)
    weights = np.arange(1.0, CLIENTS + 1)
    assert summed(moved, weights) is None
    sums = torch.zeros(2, SIZE, dtype=torch.float64)
    add_to_groups(sums, moved, np.zeros(CLIENTS, np.int64), weights, 3)
    add_to_groups(sums, change, np.ones(CLIENTS, np.int64), weights, 3)
    expected = [(one.double() * torch.from_numpy(weights)[:, None]).sum(0) for one in function(*arguments)[:2]]
    assert torch.allclose(sums, torch.stack(expected), rtol=1e-12)


def test_a_difference_is_handed_on_as_its_two_vectors() -> None:
    y, x, c, c_i, _ = vectors()
    minuend, subtrahend = difference(put_off(torch.sub, (c, c_i)))
    assert subtrahend is not None
    assert torch.equal(minuend - subtrahend, c - c_i)
    later = less(put_off(torch.neg, (c_i,)), x)
    assert later is not None
    minuend, subtrahend = difference(later)
    assert subtrahend is not None
    assert torch.equal(minuend - subtrahend, x - c_i) and torch.equal(later + 0, x - c_i)
    for other in (put_off(_gradient, (y, x, c_i, 0.1)), y):  # anything else is computed
        whole, nothing = difference(other)
        assert nothing is None and torch.equal(whole, settled(other))
    assert less(y, x) is None
    assert less(put_off(torch.sub, (c, c_i)), x) is None


def test_some_clients_of_what_is_pending_are_computed_and_all_are_not() -> None:
    _, _, c, c_i, _ = vectors()
    later = put_off(torch.sub, (c, c_i))
    assert cut(later, 0, CLIENTS) is later
    assert torch.equal(cut(later, 1, 3), (c - c_i)[1:3])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_doubt_is_answered_by_the_first_sum(value: float) -> None:
    models = torch.ones(3, 4)
    calm, spoilt = models.clone(), models.clone()
    spoilt[1, 2] = value
    doubts = [Doubt(one, "local training", "lower it") for one in (calm, spoilt)]
    for doubt, one in zip(doubts, (calm, spoilt), strict=True):
        add_to_groups(torch.zeros(1, 4, dtype=torch.float64), one, np.zeros(3, np.int64), np.ones(3), 3)
        assert doubt._total is not None
    doubts[0].check()
    with pytest.raises(NotFinite, match="local training gave values that are not finite: lower it"):
        doubts[1].check()


def test_a_doubt_that_is_answered_asks_for_no_other_sum() -> None:
    models = torch.ones(3, 4)
    doubt, asked = Doubt(models, "local training", "lower it"), []
    for _ in range(2):
        doubts.answer(models, lambda: (asked.append(1), models.sum())[1])
    assert len(asked) == 1
    doubt.check()


def test_a_doubt_that_nobody_answers_sums_up_by_itself_and_keeps_nothing() -> None:
    models = torch.ones(3, 4)
    doubt = Doubt(models, "local training", "lower it")
    doubt.sum_up()
    assert doubt._vectors is None
    doubt.check()
    del models
    gc.collect()
    assert not any(known is doubt for known in doubts._DOUBTS.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", range(5))
def test_one_pass_on_a_gpu_writes_what_is_kept_and_sums_the_rest(case: int) -> None:
    function, arguments, place = cases("cuda")[case]
    expected, weights = as_tuple(function(*arguments)), np.random.default_rng(0).random(CLIENTS)
    share = torch.from_numpy(weights).cuda()[:, None]
    for _ in range(2):  # the first is compared with torch by itself
        doubt = Doubt(arguments[0], "local training", "lower it")
        results = as_tuple(put_off(function, arguments))
        kept(results[place], CLIENTS)
        summands = [(r, e) for i, (r, e) in enumerate(zip(results, expected, strict=True)) if i != place]
        for vector, right in summands or [(arguments[0], arguments[0])]:
            total = summed(vector, weights)
            assert total is not None
            assert torch.allclose(total, (right.double() * share).sum(0), rtol=1e-12, atol=1e-13)
        assert results[place]._value is not None  # type: ignore[attr-defined]
        assert torch.equal(settled(results[place]), expected[place])
        assert doubt._total is not None
        doubt.check()


@pytest.mark.parametrize("kind", ["right", "wrong", "broken"])
def test_a_kernel_that_subtracts_is_tried_once(kind: str) -> None:
    """Against one that is given the difference; where it gives another model, or fails, the difference is computed from then on."""
    asked = []

    class Kernels:
        def train(self, *given: Any) -> None:
            constant, taken, model = given[6:9]
            asked.append(taken is not None)
            if taken is not None and kind == "broken":
                raise RuntimeError("no such instruction")
            model.copy_(constant if taken is None else constant - taken + (kind == "wrong"))

    net = Network("fcnn", (4, 4), 3)
    samples = torch.zeros(8, 4, 4, dtype=torch.uint8)
    machine = Machine(net, samples, torch.zeros(8, dtype=torch.int64), kernel="linear")
    whole: Any = machine.kernel.whole  # type: ignore[attr-defined]
    whole.kernels = Kernels()
    generator = torch.Generator().manual_seed(0)
    c, c_i = torch.randn(1, net.d, generator=generator), torch.randn(2, net.d, generator=generator)
    rows = torch.arange(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if kind == "broken" else "error")
        for _ in range(3):
            work = Train(torch.zeros(net.d), Plan(batch_size=2), correction=put_off(torch.sub, (c, c_i)))
            trained = machine.train_bundle(Bundle(work, Streams(0, 1, range(2)), rows, np.full(2, 4)))
            assert torch.equal(trained, c - c_i)
    assert asked == [False, True, *[kind == "right"] * 2]
