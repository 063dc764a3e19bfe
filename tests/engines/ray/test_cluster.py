"""Two machines of a Ray cluster, each with a raylet and an object store of its own (both on this one): data once per machine, a
machine that dies in the middle of a round, and GPUs as Ray counts them, which need not be there to be counted.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch

from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.engines.ray import pool
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run
from support.patience import until

pytestmark = pytest.mark.slow
if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed (pip install 'covey[ray]')", allow_module_level=True)

ATTEMPTS = 5


@dataclass
class Cluster:
    nodes: Any  # ray's cluster_utils.Cluster
    far: Any  # the machine beside the head


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    pool.protect()  # before Ray is imported: other tests of this process look for the token
    import ray
    from ray.cluster_utils import Cluster as Nodes

    ray.shutdown()
    one = {"num_cpus": 1, "num_gpus": 1}
    nodes = _patiently(lambda: Nodes(initialize_head=True, head_node_args=one))
    try:
        far = _patiently(lambda: nodes.add_node(**one))
        monkeypatch.setenv("RAY_ADDRESS", nodes.address)
        yield Cluster(nodes, far)
    finally:
        pool._idle.clear()
        ray.shutdown()
        nodes.shutdown()


def _patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a machine 30 s to start, whatever else this one has to do."""
    for attempt in range(ATTEMPTS):
        try:
            return start()
        except Exception as e:
            if attempt == ATTEMPTS - 1 or "timed out during startup" not in str(e):
                raise
    raise AssertionError("no attempt")


def small(engine_: str, **more: Any) -> Experiment:
    return Experiment.of(
        {
            "dataset": "digits",
            "model": "softmax",
            "clients": 10,
            "clusters": 5,
            "partition": {"name": "label_sets", "public": 20},
            "training": {"rounds": 3, "epochs": 2, "batch_size": 10, "lr": 0.1},
            "engine": {"name": engine_, "workers": 2, "clients_at_once": 2},
        },
        **more,
    )


@dataclass
class Lightning:
    """Sees all replies, and strikes a machine in the middle of a round."""

    name: ClassVar[str] = "lightning"
    vantage: ClassVar[str] = "server"

    strike: Any
    at: tuple[int, int] = (2, 5)  # round, replies before it
    memory: dict[str, Any] = field(default_factory=dict)
    seen: int = 0

    def begin(self, knowledge: Knowledge) -> None:
        pass

    def observe(self, view: View) -> None:
        if view.receiver == "server":
            if (view.round, self.seen) == self.at:
                self.strike()
            self.seen += 1

    def end_round(self, round: int) -> None:
        self.seen = 0

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "none", 0.0, 0.0, 0.0, 0.0)


def test_a_machine_that_dies_in_a_round_changes_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pool.connect()
    until(lambda: pool.processors(ray) == 2)
    places: list[Any] = []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: places.append(put(value)) or places[-1])
    nodes_with_data: list[set[str]] = []

    def where() -> set[str]:
        return set(ray.experimental.get_object_locations([places[1]])[places[1]]["node_ids"])

    def look(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 1:  # parcel, then data: the first two that were put
            until(lambda: len(where()) == 2)  # both machines have computed; Ray may list a copy a little later
            nodes_with_data.append(where())

    struck = Lightning(lambda: cluster.nodes.remove_node(cluster.far, allow_graceful=False))
    there = run(small("simulate"), quiet=True)
    # The far machine's worker dies with it and is started on the other; its waves are done again.
    on_ray = run(small("ray"), attacks=[struck], callbacks=[look], quiet=True)
    assert nodes_with_data == [{node["NodeID"] for node in ray.nodes()}]  # on each once, dead or alive
    until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    assert torch.equal(there.state.models, on_ray.state.models)
    for one, other in zip(there.records, on_ray.records, strict=True):
        assert one["accuracy"] == other["accuracy"]


def test_gpus_are_dealt_by_ray(cluster: Cluster) -> None:
    """Ray counts GPUs as it is told; what a worker would compute on is its own matter."""
    ray = pool.connect()
    until(lambda: ray.cluster_resources().get("GPU") == 2)
    assert pool.places(ray, 1.0) == 2
    assert pool.places(ray, 0.5) == 4
    assert pool.places(ray, 2.0) == 1
    actors = pool.acquire(ray, 4, 0.5)
    assert len(actors) == 4
    until(lambda: ray.available_resources().get("GPU", 0) == 0)
    with pytest.raises(CoveyError, match="the GPUs of the Ray cluster serve 2 workers"):
        run(small("ray", engine={"device": "cuda", "workers": 3}), quiet=True)
    with pytest.raises(CoveyError, match="has 2 GPUs, a worker wants 3"):
        run(small("ray", engine={"device": "cuda", "gpus": 3, "workers": 0}), quiet=True)
    for actor in actors:
        pool._end(ray, actor)
    until(lambda: ray.available_resources().get("GPU", 0) == 2)
    if not torch.cuda.is_available():  # workers are started with a GPU each, and find none
        with pytest.raises(CoveyError, match="torch finds no CUDA device here"):
            run(small("ray", engine={"device": "cuda", "workers": 2}), quiet=True)
