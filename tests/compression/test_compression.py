"""Packed replies: fewer bytes, counted as they cross the wire; nothing is lost with feedback; what makes no sense is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.ifca import ClusterModels, ClusterUpdate
from covey.algorithms.scaffold import ControlledChange, ControlledModel
from covey.compression.eight_bit import EightBit
from covey.compression.replies import MEMORY, PackedReply, pack, unpack
from covey.compression.top_k import TopK
from covey.deploy.letters import unpack as opened
from covey.errors import CoveyError
from covey.messages import decode, encode, size
from support.deployment import Deployment, rehearsal, simulated

RNG = np.random.default_rng(0)


class Me:
    """What packing asks of a client."""

    def __init__(self, memory: dict[str, Any] | None = None) -> None:
        self.memory = memory or {}

    def random(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(3)


class Agreement:
    def __init__(self, d: int, k: int = 1) -> None:
        self.start = torch.zeros(k, d)


def test_top_k_sends_the_largest_numbers_and_keeps_the_others() -> None:
    me, few = Me(), TopK(share=0.5)
    got, reply = GlobalModel(torch.zeros(4)), LocalModel(torch.tensor([1.0, -3.0, 0.5, 2.0]), 7)
    sent = pack(few, me, got, reply)
    assert unpack(few, Agreement(4), got, sent) == LocalModel(pytest.approx(torch.tensor([0.0, -3.0, 0.0, 2.0])), 7)
    again = pack(few, me, got, LocalModel(torch.tensor([0.6, 0.0, 0.0, 0.1]), 7))  # 1.0 + 0.6 and 0.5 come now
    assert unpack(few, Agreement(4), got, again).model == pytest.approx(torch.tensor([1.6, 0.0, 0.5, 0.0]))
    lossy = Me()
    pack(TopK(share=0.5, feedback=False), lossy, got, reply)
    assert lossy.memory == {}


def test_nothing_is_lost_over_rounds_with_feedback() -> None:
    me, few, got = Me(), TopK(share=0.2), GlobalModel(torch.zeros(10))
    changes = [torch.from_numpy(RNG.normal(size=10).astype(np.float32)) for _ in range(30)]
    sent = [unpack(few, Agreement(10), got, pack(few, me, got, LocalModel(c, 1))).model for c in changes]
    rest = me.memory[MEMORY]["model"]["rest"]
    assert torch.stack(sent).sum(0) + rest == pytest.approx(torch.stack(changes).sum(0), abs=1e-4)


def test_eight_bits_are_right_on_average_and_near() -> None:
    vector = torch.from_numpy(RNG.normal(size=3000).astype(np.float32))
    coarse = EightBit()
    drawn = torch.stack([coarse.decode(coarse.encode(vector, np.random.default_rng(i)), 3000) for i in range(200)])
    level = float(vector.abs().max()) / 127
    assert float((drawn - vector).abs().max()) <= level * 1.001
    assert float((drawn.mean(0) - vector).abs().mean()) < level / 20
    near = EightBit(rounding="nearest")
    assert float((near.decode(near.encode(vector, RNG), 3000) - vector).abs().max()) <= level * 0.501
    flat = torch.zeros(5)
    assert torch.equal(coarse.decode(coarse.encode(flat, RNG), 5), flat)


def test_what_is_left_out_of_a_scaffold_upload_changes_no_variate() -> None:
    """Only the second number is sent: of the others the server takes Δy = −K η c, which is Δc = 0."""
    got = ControlledModel(torch.zeros(3), torch.tensor([2.0, -4.0, 1.0]))
    few = TopK(share=0.3)
    sent = pack(few, Me(), got, ControlledChange(torch.tensor([-1.1, 9.0, -0.4]), 0.5))
    seen = unpack(few, Agreement(3), got, sent)
    assert seen.model == pytest.approx(torch.tensor([-1.0, 9.0, -0.5]))
    for reach in ("far", None, [1.0]):
        odd = replace(sent, reply=replace(sent.reply, reach=reach))
        with pytest.raises(CoveyError, match="model cannot be unpacked"):
            unpack(few, Agreement(3), got, odd)


def test_a_model_is_packed_against_the_one_it_is_nearest_to() -> None:
    whole = TopK(share=1.0)
    got = ClusterModels(torch.tensor([[0.0, 0.0], [10.0, 10.0]]))
    me = Me()
    sent = pack(whole, me, got, ClusterUpdate(torch.tensor([10.5, 9.0]), 1, 3))
    assert sent.references == {"model": 1} and sent.reply.model is None
    assert unpack(whole, Agreement(2, 2), got, sent).model == pytest.approx(torch.tensor([10.5, 9.0]))
    half = TopK(share=0.5)
    pack(half, me, got, ClusterUpdate(torch.tensor([11.0, 10.4]), 1, 3))
    other = pack(
        half, me, got, ClusterUpdate(torch.tensor([0.0, 1.0]), 0, 3)
    )  # another cluster: its rest is not this one's
    assert unpack(half, Agreement(2, 2), got, other).model == pytest.approx(torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize(
    ("algorithm", "compression"),
    [
        ("ifca", "top_k"),
        ("scaffold", "eight_bit"),
        pytest.param("fedavg", "top_k", marks=pytest.mark.slow),
        pytest.param("fedem", "top_k", marks=pytest.mark.slow),
        pytest.param("sattler", "eight_bit", marks=pytest.mark.slow),
    ],
)
def test_deployed_and_simulated_runs_are_the_same(tmp_path: Path, algorithm: str, compression: str) -> None:
    experiment = rehearsal(algorithm, compression=compression, start={"common": False}, training={"rounds": 2})
    parties = Deployment(tmp_path, experiment)
    lengths: list[int] = []

    def weigh(name: str, call: bytes, answer: bytes) -> bytes:
        letter = decode(opened(answer).payload)
        if isinstance(getattr(letter.body, "reply", None), PackedReply):
            rest = size(letter.body.reply) - 8  # all but the codec's own eight bytes
            assert len(answer) - rest < 900  # what a letter has around it, whatever the reply
            lengths.append(size(letter.body.reply))
        return answer

    parties.office.tamper = weigh
    deployed = parties.coordinator().run()
    result, _ = simulated(experiment)
    assert deployed.accuracy["client_mean"] == pytest.approx(result.accuracy["client_mean"], abs=0.05)
    for ours, theirs in zip(result.records, deployed.records):
        assert ours["bytes"]["up"] == pytest.approx(theirs["bytes"]["up"])
    assert len(lengths) == 8 and np.mean(lengths) == pytest.approx(deployed.bytes["up"])
    plain = run(rehearsal(algorithm, start={"common": False}, training={"rounds": 1}), quiet=True)
    assert deployed.bytes["up"] < plain.bytes["up"] * {"top_k": 0.1, "eight_bit": 0.3}[compression]
    for figure in ("mean", "worst"):  # silos test on their own samples, a few of those that the simulation weighs
        assert deployed.metrics["loss"][figure] == pytest.approx(result.metrics["loss"][figure], rel=0.3)
    assert len(deployed.records[-1]["metrics"]["balanced_accuracy"]["clients"]) == 4
    name = parties.names[0]
    if compression == "top_k":  # what was not sent survives a restart
        assert parties.silo(name).state.memory[MEMORY]


def test_what_is_counted_is_what_crosses_the_wire() -> None:
    few, got = TopK(share=0.1), GlobalModel(torch.zeros(1000))
    packed = pack(few, Me(), got, LocalModel(torch.ones(1000), 5))
    assert size(packed) == len(encode(packed)) < 8 * 100 + 300
    assert unpack(few, Agreement(1000), got, decode(encode(packed), foreign=True)).samples == 5


def test_an_interrupted_run_goes_on_with_what_was_not_sent(tmp_path: Path) -> None:
    experiment = rehearsal("fedavg", compression="top_k", training={"rounds": 4}, engine={"checkpoint_every": 1})
    whole = run(experiment, quiet=True)

    def stop(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path, callbacks=[stop], quiet=True)
    assert run(experiment, out=tmp_path, resume=True, quiet=True).accuracy == whole.accuracy


def test_noise_comes_first_and_costs_what_it_costs() -> None:
    table = {"defence": {"name": "ldp", "epsilon": 5.0}, "training": {"rounds": 2, "steps": 1, "batch_size": 10}}
    plain, packed = (
        run(rehearsal("fedavg", **table), quiet=True),
        run(rehearsal("fedavg", compression="top_k", **table), quiet=True),
    )
    assert packed.privacy == plain.privacy


@pytest.mark.parametrize(
    ("algorithm", "encryption", "words"),
    [
        ("mingledpie", "ckks", "its replies are sealed"),
        ("mingledpie", "none", "its replies are sealed"),
        ("routing", "bfv", "its replies are sealed"),
        ("local", "none", "send no models"),
        ("pqfed", "none", "cannot work under pqfed"),
    ],
)
def test_what_makes_no_sense_is_refused(algorithm: str, encryption: str, words: str) -> None:
    with pytest.raises(CoveyError, match=words):
        Experiment.of(algorithm=algorithm, encryption=encryption, compression="top_k")


def test_bad_settings_are_refused() -> None:
    for table, words in (
        ({"name": "top_k", "share": 0}, "above 0 and at most 1"),
        ({"name": "eight_bit", "rounding": "up"}, "'stochastic' or 'nearest'"),
        ({"name": "eight_bit", "block": 0}, "at least 1"),
        ("topk", "did you mean 'top_k'"),
    ):
        with pytest.raises(CoveyError, match=words):
            Experiment.of(algorithm="fedavg", compression=table)


@pytest.mark.parametrize(
    ("compression", "packed", "words"),
    [
        (TopK(), {}, "holds no places"),
        (TopK(), {"at": torch.tensor([0, 0], dtype=torch.int32), "values": torch.ones(2)}, "not in order"),
        (TopK(), {"at": torch.tensor([7], dtype=torch.int32), "values": torch.ones(1)}, "not below 4"),
        (TopK(), {"at": torch.tensor([-1], dtype=torch.int32), "values": torch.ones(1)}, "not in order"),
        (TopK(), {"at": torch.tensor([1]), "values": torch.ones(1)}, "int32"),
        (TopK(), 7, "which it cannot be"),
        (EightBit(), {"levels": torch.zeros(3, dtype=torch.int8), "scales": torch.ones(1)}, "4 levels"),
        (EightBit(), {"levels": torch.zeros(4, dtype=torch.int8), "scales": torch.ones(2)}, "1 scales"),
    ],
)
def test_what_nobody_can_have_packed_is_refused(compression: Any, packed: Any, words: str) -> None:
    got = GlobalModel(torch.zeros(4))
    reply = PackedReply(LocalModel(None, 1), {"model": packed}, {"model": 0})  # type: ignore[arg-type]
    with pytest.raises(CoveyError, match=words):
        unpack(compression, Agreement(4), got, reply)


def test_replies_of_another_form_are_refused() -> None:
    got, few = GlobalModel(torch.zeros(4)), TopK()
    with pytest.raises(CoveyError, match="plain vectors, expected them packed"):
        unpack(few, Agreement(4), got, LocalModel(torch.zeros(4), 1))
    good = {"at": torch.zeros(1, dtype=torch.int32), "values": torch.ones(1)}
    with pytest.raises(CoveyError, match="1 were sent"):
        unpack(few, Agreement(4), got, PackedReply(LocalModel(None, 1), {"model": good}, {"model": 3}))  # type: ignore[arg-type]
    with pytest.raises(CoveyError, match="other packed fields"):
        unpack(few, Agreement(4), got, PackedReply(LocalModel(None, 1), {"samples": good}, {}))  # type: ignore[arg-type]
