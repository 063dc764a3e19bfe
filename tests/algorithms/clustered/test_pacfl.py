"""PACFL by hand: subspaces, angles, groups, newcomers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from covey.algorithms.clustered.pacfl import PACFL, Introduction
from covey.clustering.subspaces import angles, leading_vectors
from covey.errors import CoveyError
from support.quadratic_clients import Quadratic, Seen, steps


def along(*directions: tuple[float, float]) -> list[Quadratic]:
    return [Quadratic(torch.tensor([d, d])) for d in directions]


def test_leading_vectors_of_samples() -> None:
    wide = torch.tensor([[3.0, 0.0, 0.0], [0.0, -2.0, 0.0]])  # singular values 3 and 2
    assert leading_vectors(wide, 2).T.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    tall = wide.T @ torch.diag(torch.tensor([1.0, 1.0]))  # [3, 2] samples of two inputs
    assert leading_vectors(tall, 3).T.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]  # no third
    equal = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert leading_vectors(equal, 2).T.tolist() == [pytest.approx([0.5**0.5] * 2), [0.0, 0.0]]


def test_angles_between_subspaces() -> None:
    def plane(*columns: list[float]) -> torch.Tensor:
        return torch.tensor(columns).T[None]

    e1, e2, slant = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5**0.5, 0.0, 0.5**0.5]
    assert angles(plane(e1, e2), plane(slant, e2), "sum")[0, 0] == pytest.approx(45, abs=0.1)
    assert angles(plane(e1, e2), plane([-1.0, 0.0, 0.0], e2), "sum")[0, 0] == pytest.approx(
        0, abs=0.1
    )  # signs are none
    assert angles(plane(e1, e2), plane(e2, e1), "sum")[0, 0] == pytest.approx(180)
    assert angles(plane(e1, e2), plane(e2, e1), "smallest")[0, 0] == pytest.approx(0, abs=0.1)  # the same plane
    assert angles(plane(e1), plane(slant), "smallest")[0, 0] == pytest.approx(45, abs=1e-3)


@pytest.mark.parametrize("fields", [{}, {"threshold": 30.0}, {"measure": "smallest", "linkage": "complete"}], ids=str)
def test_clients_are_grouped_by_their_samples_and_newcomers_join(fields: dict[str, Any]) -> None:
    clients = along((4.0, 0.0), (8.0, 0.4), (0.0, 4.0), (0.2, 8.0))
    bench = Seen(PACFL(vectors=1, **fields), clients, [[0.0, 0.0]] * 2, steps(1))
    state = bench.round(0, 2)
    assert isinstance(bench.replies[0], Introduction) and state.grouping.place == {0: 1, 2: 2}
    assert state.grouping.models.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    state = bench.round(1, 3)  # from the reference: they are placed, and their models do not count yet
    assert state.grouping.place == {0: 1, 1: 1, 2: 2, 3: 2}
    assert state.grouping.models.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert not isinstance(Seen.round(bench, 0) and bench.replies[0], Introduction)  # told once


def test_a_newcomer_that_is_like_nobody_founds_a_group() -> None:
    clients = along((4.0, 0.0), (4.0, 0.1), (3.0, -4.0))
    bench = Seen(PACFL(vectors=1, threshold=20.0), clients, [[0.0, 0.0]] * 2, steps(1))
    bench.round(0, 1)
    state = bench.round(2)
    assert state.grouping.place == {0: 1, 1: 1, 2: 2} and state.grouping.models[1].tolist() == [1.5, -2.0]


def test_broken_descriptions_are_left_out() -> None:
    bench = Seen(PACFL(vectors=1), along((4.0, 0.0), (4.0, 0.1), (0.0, 4.0)), [[0.0, 0.0]] * 2, steps(1))
    bench.round(0, 1)
    odd = Introduction(torch.ones(2), 1, torch.ones(5, 1))
    from contextlib import nullcontext

    from covey.algorithms.contract import Server

    server = Server(2, 0, bench.setting, {}, lambda *_: None, lambda _: nullcontext())
    state = bench.algorithm.aggregate(server, bench.state, iter([(2, odd)]))
    assert state.grouping.place == bench.state.grouping.place and 2 not in state.vectors


def test_noise_is_on_the_vectors_that_are_sent() -> None:
    clients = along((4.0, 0.0)) * 200
    exact, noised = (Seen(PACFL(vectors=1, noise=noise), clients, [[0.0, 0.0]], steps(1)) for noise in (0.0, 0.5))
    exact.round()
    noised.round()
    moved = torch.cat([noised.replies[i].vectors - exact.replies[i].vectors for i in range(200)])
    assert float(moved.std()) == pytest.approx(0.5, rel=5 / math.sqrt(2 * len(moved)))


@pytest.mark.parametrize(
    "fields",
    [{"vectors": 0}, {"measure": "largest"}, {"linkage": "ward"}, {"threshold": -1.0}, {"noise": -1.0}],
    ids=str,
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(CoveyError, match=rf"algorithm\.{next(iter(fields))}"):
        PACFL(**fields)
