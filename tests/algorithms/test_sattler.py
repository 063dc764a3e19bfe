"""Sattler's recursive bipartition by hand. A client with its samples at p has the loss ½ ‖θ − p‖²; one step of ½ goes half way."""

from __future__ import annotations

import pytest
import torch

from covey.algorithms.fedavg import FedAvg
from covey.algorithms.sattler import Sattler
from covey.errors import CoveyError
from covey.messages import decode, encode
from support.quadratic_clients import Bench, Quadratic, steps


def at(*point: float, samples: int = 1) -> Quadratic:
    return Quadratic(torch.tensor([point] * samples))


def models(bench: Bench, *clients: int) -> list[list[float]]:
    return [bench.algorithm.broadcast(bench.state, i).model.tolist() for i in clients]


def test_two_clients_at_odds_are_split_when_their_mean_has_come_to_rest() -> None:
    # From (0, 0): updates (1, 0) and (−1, 0), mean 0 < ε1, longest 1 > ε2, similarity −1. Split at once: each goes on
    # from (0, 0) plus its own mean update. The root keeps its model and both directions.
    bench = Bench(Sattler(eps1=0.1, eps2=0.5), [at(2.0, 0.0), at(-2.0, 0.0)], [[0.0, 0.0]], steps(1))
    tree = bench.round()
    assert tree.nodes[0].children == (1, 2) and tree.nodes[0].sent.model.tolist() == [0.0, 0.0]
    assert tree.nodes[0].sides.tolist() == [[1.0, 0.0], [-1.0, 0.0]]
    assert models(bench, 0, 1) == [[1.0, 0.0], [-1.0, 0.0]]
    # Now alone: (1, 0) goes half way to (2, 0), (−1, 0) likewise; a cluster of one is never split.
    tree = bench.round()
    assert models(bench, 0, 1) == [[1.5, 0.0], [-1.5, 0.0]]
    assert [bench.notes[i]["cluster"] for i in (0, 1)] == [1, 2]
    assert len(tree.nodes) == 3


def test_a_mean_that_still_moves_is_not_split() -> None:
    # Updates (1, 0) and (−3, 0): mean (−1, 0) is longer than ε1, so the model moves there.
    bench = Bench(Sattler(eps1=0.1, eps2=0.5), [at(2.0, 0.0), at(-6.0, 0.0)], [[0.0, 0.0]], steps(1))
    assert len(bench.round().nodes) == 1
    assert models(bench, 0, 1) == [[-1.0, 0.0]] * 2
    # From (−1, 0) to (2, 0) and (−6, 0): (1.5, 0) and (−2.5, 0), mean (−.5, 0); then (−1.5, 0), mean (−.25, 0); and so on:
    # −½^t, below .1 in round 5.
    assert [len(bench.round().nodes) for _ in range(4)] == [1, 1, 1, 3]


def test_clients_who_all_rest_are_not_split() -> None:
    # Updates of length .1 stay below ε2, whatever their directions.
    bench = Bench(Sattler(eps1=0.1, eps2=0.5), [at(0.2, 0.0), at(-0.2, 0.0)], [[0.0, 0.0]], steps(1))
    assert len(bench.round().nodes) == 1


def test_gamma_asks_for_more_than_noise() -> None:
    # Updates (1, 0), (−.5, .5), (−.5, −.5): the two on the left are orthogonal, cos to the first is −√½. The cut between
    # them has α = −√½ and √((1 + √½) / 2) = .924.
    clients = [at(2.0, 0.0), at(-1.0, 1.0), at(-1.0, -1.0)]
    for gamma, nodes in ((0.92, 3), (0.93, 1)):
        bench = Bench(Sattler(eps1=0.1, eps2=0.5, gamma=gamma), clients, [[0.0, 0.0]], steps(1))
        assert len(bench.round().nodes) == nodes


def test_a_split_side_averages_its_own_members() -> None:
    # Right: (1, .5) and (1, −.5) with 1 and 3 samples; left (−2, 0). Per client their means are (1, 0) and (−2, 0); by
    # samples (1, −.25).
    clients = [at(2.0, 1.0), at(2.0, -1.0, samples=3), at(-4.0, 0.0)]
    bench = Bench(Sattler(eps1=0.1, eps2=0.5), clients, [[0.0, 0.0]], steps(1))
    bench.round()
    assert models(bench, 0, 1, 2) == [[1.0, 0.0], [1.0, 0.0], [-2.0, 0.0]]
    bench = Bench(Sattler(eps1=0.9, eps2=1.0, weighting="samples"), clients, [[0.0, 0.0]], steps(1))
    bench.round()  # the mean by samples is (.4, −.2), of length .45
    assert models(bench, 0, 2) == [[1.0, -0.25], [-2.0, 0.0]]


def test_members_share_one_message_object_also_after_a_checkpoint() -> None:
    clients = [at(2.0, 0.0), at(2.0, 0.0), at(-2.0, 0.0), at(-2.0, 0.0)]
    bench = Bench(Sattler(eps1=0.1, eps2=0.5), clients, [[0.0, 0.0]], steps(1))
    bench.round()
    for state in (bench.state, decode(encode(bench.state))):
        sent = [bench.algorithm.broadcast(state, i) for i in range(4)]
        assert sent[0] is sent[1] and sent[2] is sent[3] and sent[0] is not sent[2]


def test_newcomers_and_those_who_were_away_walk_down_the_tree() -> None:
    # Clients 0 and 1 split at the root. Client 2, away until then, and 3, new, still stand there: they get the root's model,
    # their updates (1, 1) and (−.5, 1) are nearer to the right and to the left, and count in no average.
    clients = [at(2.0, 0.0), at(-2.0, 0.0), at(2.0, 2.0), at(-1.0, 2.0)]
    bench = Bench(Sattler(eps1=0.1, eps2=0.5), clients, [[0.0, 0.0]], steps(1))
    bench.round(0, 1)
    assert models(bench, 2, 3) == [[0.0, 0.0]] * 2
    bench.round()
    root = bench.state.nodes[0]
    assert (root.sent.model.tolist(), root.children) == ([0.0, 0.0], (1, 2))
    assert [bench.notes[i]["cluster"] for i in (2, 3)] == [0, 0]
    assert models(bench, 0, 1, 2, 3) == [[1.5, 0.0], [-1.5, 0.0]] * 2
    # From now on their updates count: the right goes from (1.5, 0) by the mean of (.25, 0) and (.25, 1).
    bench.round(0, 2)
    assert models(bench, 2) == [[1.75, 0.5]]


def test_splits_recur() -> None:
    # Four corners: ±x first (cosine across −.6 at most), then each side by ±y.
    clients = [at(4.0, 2.0), at(4.0, -2.0), at(-4.0, 2.0), at(-4.0, -2.0)]
    bench = Bench(Sattler(eps1=0.1, eps2=0.2), clients, [[0.0, 0.0]], steps(1))
    leaves = []
    for _ in range(8):
        tree = bench.round()
        leaves.append(sum(node.children is None for node in tree.nodes))
    assert leaves[0] == 2 and leaves[-1] == 4 and leaves == sorted(leaves)
    assert len({tree.at(i) for i in range(4)}) == 4


def test_thresholds_left_at_zero_follow_the_largest_mean() -> None:
    # Means −1, −½, −¼, −⅛, −1/16 as above: the first below a tenth of the largest, 1, is that of round 5.
    bench = Bench(Sattler(), [at(2.0, 0.0), at(-6.0, 0.0)], [[0.0, 0.0]], steps(1))
    assert [len(bench.round().nodes) for _ in range(5)] == [1, 1, 1, 1, 3]
    assert bench.state.largest == 1.0


def test_without_a_split_it_is_fedavg() -> None:
    clients = [at(2.0, 1.0), at(-6.0, 3.0, samples=3)]
    for weighting in ("clients", "samples"):
        split, average = (
            Bench(a, clients, [[0.0, 0.0]], steps(2))
            for a in (Sattler(eps1=1e-9, weighting=weighting), FedAvg(weighting=weighting))
        )
        for _ in range(4):
            split.round()
            assert split.state.nodes[0].sent.model.tolist() == pytest.approx(average.round().model.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    "fields", [{"eps1": -1.0}, {"eps1": 2.0, "eps2": 1.0}, {"gamma": 1.0}, {"gamma": -0.1}, {"weighting": "none"}]
)
def test_fields_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\."):
        Sattler(**fields)  # type: ignore[arg-type]


def test_shared_layers_are_refused() -> None:
    with pytest.raises(CoveyError, match="shared layers"):
        Bench(Sattler(), [at(1.0, 1.0)], [[0.0, 0.0]], steps(1), personal=[True, False])
