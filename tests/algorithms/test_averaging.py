"""FedAvg, FedProx, IFCA and local training, every step worked out by hand. A sample x has the loss ½ (θ − x)²."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from covey.algorithms import averaging
from covey.algorithms.averaging import Averages
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.fedprox import FedProx
from covey.algorithms.ifca import IFCA
from covey.algorithms.local import Begin, Done, LocalOnly
from covey.errors import CoveyError
from support.quadratic_clients import Bench, Quadratic, on_a_line, steps

A, B = on_a_line(0.0), on_a_line(4.0, 4.0, 4.0)  # one sample, three samples


def test_fedavg_by_samples_and_by_clients() -> None:
    # From 2, one step of ½: A's gradient is 2, so 2 − 1 = 1; B's is −2, so 3. (1·1 + 3·3) / 4 = 2.5; (1 + 3) / 2 = 2.
    by_samples = Bench(FedAvg(), [A, B], [[2.0]], steps(1))
    assert by_samples.round().model.tolist() == [2.5]
    assert [r.model.item() for r in by_samples.replies.values()] == [1, 3]
    assert Bench(FedAvg(weighting="clients"), [A, B], [[2.0]], steps(1)).round().model.tolist() == [2.0]


def test_fedavg_begins_at_the_mean_of_the_starts_and_sends_one_object_to_all() -> None:
    bench = Bench(FedAvg(), [A, B], [[1.0], [3.0]], steps(1))
    assert bench.state.model.tolist() == [2.0]
    assert bench.algorithm.broadcast(bench.state, 0) is bench.algorithm.broadcast(bench.state, 1)


def test_fedavg_without_replies_keeps_its_model() -> None:
    assert Averages(1, like=torch.zeros(2)).means(torch.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]


def test_fedprox_pulls_back_to_the_global_model() -> None:
    # μ = 1, two steps of ½ from 2. A: gradient 2 + 1·(2 − 2) = 2, to 1; then 1 + 1·(1 − 2) = 0, stays at 1.
    # B: −2 + 0, to 3; then −1 + 1·(3 − 2) = 0, stays at 3. By samples (1 + 9) / 4 = 2.5.
    bench = Bench(FedProx(mu=1.0), [A, B], [[2.0]], steps(2))
    assert bench.round().model.tolist() == [2.5]
    assert [r.model.item() for r in bench.replies.values()] == [1, 3]
    # Round 2 is anchored at 2.5: A 2.5 → 1.25 → 1.25 − ½ (1.25 − 1.25) = 1.25; B −1.5: 3.25 → −.75 + .75 = 0: 3.25.
    assert bench.round().model.item() == (1.25 + 3 * 3.25) / 4
    # Without the pull the same two steps go on: A 2 → 1 → .5, B 2 → 3 → 3.5.
    free = Bench(FedProx(mu=0.0), [A, B], [[2.0]], steps(2))
    free.round()
    assert [r.model.item() for r in free.replies.values()] == [0.5, 3.5]


def test_ifca_clients_take_the_model_that_fits_and_clusters_average_apart() -> None:
    # Models 0 and 4. A (sample 1) has losses ½ and 4½: takes 0, steps to ½. B (sample 3, twice) takes 4, steps to 3½.
    # C (sample 6) takes 4 and steps to 5. Cluster 1 by clients: (3½ + 5) / 2 = 4.25; by samples: (7 + 5) / 3 = 4.
    clients = [on_a_line(1.0), on_a_line(3.0, 3.0), on_a_line(6.0)]
    bench = Bench(IFCA(), clients, [[0.0], [4.0]], steps(1))
    assert bench.round().models.flatten().tolist() == [0.5, 4.25]
    assert [bench.notes[i]["cluster"] for i in range(3)] == [0, 1, 1]
    by_samples = Bench(IFCA(weighting="samples"), clients, [[0.0], [4.0]], steps(1))
    assert by_samples.round().models.flatten().tolist() == [0.5, 4.0]
    assert bench.use(0).index == 0 and bench.use(2).index == 1


def test_ifca_keeps_the_model_that_nobody_chose() -> None:
    assert Bench(IFCA(), [A, A], [[0.0], [4.0]], steps(1)).round().models[1].tolist() == [4.0]


def test_ifca_with_one_cluster_is_fedavg() -> None:
    one, average = (
        Bench(IFCA(), [A, B], [[2.0]], steps(3)),
        Bench(FedAvg(weighting="clients"), [A, B], [[2.0]], steps(3)),
    )
    for _ in range(3):
        assert torch.equal(one.round().models[0], average.round().model)


def test_ifca_averages_shared_layers_over_all_clients() -> None:
    # The second parameter is shared: clients step to (½, 1) and (3½, 3), so clusters (½, 2) and (3½, 2).
    clients = [Quadratic(torch.tensor([[1.0, 2.0]])), Quadratic(torch.tensor([[3.0, 6.0]]))]
    bench = Bench(IFCA(), clients, [[0.0, 0.0], [4.0, 0.0]], steps(1), personal=[True, False])
    assert bench.round().models.tolist() == [[0.5, 2.0], [3.5, 2.0]]


def test_local_clients_go_on_from_their_own_model_and_send_nothing() -> None:
    bench = Bench(LocalOnly(), [A, B], [[2.0]], steps(1))
    for _ in range(2):
        assert bench.round() == Begin()
        assert bench.replies == {0: Done(), 1: Done()}
    assert [bench.memories[i]["model"].item() for i in (0, 1)] == [0.5, 3.5]  # 2 → 1 → ½ and 2 → 3 → 3½
    assert bench.use(0).models.tolist() == [[0.5]]


@pytest.mark.parametrize("mu", [-0.1, float("nan"), float("inf")])
def test_a_pull_that_cannot_work_is_refused(mu: float) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\.mu"):
        FedProx(mu=mu)


@pytest.mark.parametrize("algorithm", [FedAvg, FedProx, IFCA])
def test_unknown_weighting_is_refused(algorithm: type) -> None:
    with pytest.raises(CoveyError, match="samples"):
        algorithm(weighting="volume")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("clients", [1, 128, 133])
def test_a_gpu_adds_many_models_at_once_and_gets_the_same_averages(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averaging, "AT_ONCE", 128 * 8 * 1000)
    models = torch.randn(clients, 1000, generator=torch.Generator().manual_seed(clients))
    here, there = Averages(3, models), Averages(3, models.cuda())
    for i, model in enumerate(models):
        here.add(i % 2, model, 1 + i)
        there.add(i % 2, model.cuda(), 1 + i)
    before = torch.full((3, 1000), 7.0)
    torch.testing.assert_close(there.means(before.cuda()).cpu(), here.means(before), rtol=1e-7, atol=0)
    torch.testing.assert_close(there.overall(before[0].cuda()).cpu(), here.overall(before[0]), rtol=1e-7, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("clients", [1, 16, 133])
def test_a_gpu_adds_rows_of_models_and_gets_the_same_averages(clients: int) -> None:
    models = torch.randn(clients, 1100, generator=torch.Generator().manual_seed(clients))[:, :1000]
    groups, weights = np.arange(clients) % 2, 1.0 + np.arange(clients)
    here, there = Averages(3, models), Averages(3, models.cuda())
    for _ in range(2):
        here.add(groups, models, weights)
        there.add(groups, models.cuda(), weights)
    torch.testing.assert_close(there.sums.cpu(), here.sums, rtol=1e-12, atol=1e-12)
    assert (here.counts, here.weights) == (there.counts, there.weights)
