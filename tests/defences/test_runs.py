"""Defences in whole runs on the embedded digits: under every algorithm, harmless when switched off, priced at the end."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from covey.algorithms import ALGORITHMS
from covey.cli.main import main
from covey.defences import DEFENCES
from covey.defences.afc import AFC
from covey.defences.ldp import LDP
from covey.errors import CoveyError
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

ONE_STEP = {"rounds": 2, "epochs": 0, "steps": 1, "batch_size": 40, "lr": 0.2}


def experiment(defence="none", **more) -> Experiment:
    values = {
        "clients": 4,
        "clusters": 2,
        "algorithm": "ifca",
        "training": ONE_STEP,
        "start": {"common": False},
        "engine": {"workers": 1},
        "evaluation": {"every": 50, "samples": 50},
    }
    return Experiment.of(values | more, defence=defence)


def models(result) -> list[torch.Tensor]:
    return [value for value in vars(result.state).values() if isinstance(value, torch.Tensor) and value.ndim <= 2]


def encryption_of(algorithm: str) -> str:
    able = encryptions.able(ALGORITHMS[algorithm])
    return "none" if "none" in able else able[0]


def runs_here(algorithm: str) -> bool:
    """Whether the algorithm takes this setting at all (some want a partition of their own)."""
    try:
        run(experiment(algorithm=algorithm, encryption=encryption_of(algorithm)), quiet=True)
    except CoveyError:
        return False
    return True


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_defence_runs_under_every_algorithm(algorithm):
    if not runs_here(algorithm):
        pytest.skip(f"{algorithm} does not run in the plain setting of this test")
    for name in DEFENCES:
        try:
            here = experiment({"name": name}, algorithm=algorithm, encryption=encryption_of(algorithm))
        except CoveyError:
            assert hasattr(DEFENCES[name], "around")  # one of whole clients says under which algorithms it can
            continue
        result = run(here, quiet=True)
        assert all(bool(torch.isfinite(model).all()) for model in models(result))
        asked = (name, algorithm) != (
            "randomised_response",
            "rdpcfl",
        )  # its clients choose in the last rounds of ten or more
        assert list(result.privacy) == ([] if name in ("dropout", "l2") or not asked else [name])


OFF = [
    {"name": "dp_sgd", "clip": math.inf, "noise": 0.0},
    {"name": "dp_sgd", "clip": 1e6, "noise": 0.0},
    {"name": "ldp", "clip": math.inf, "epsilon": math.inf},
    {"name": "adp", "clip": 1e6, "epsilon": math.inf},
    {"name": "dropout", "rate": 0.0},
    {"name": "l2", "weight_decay": 0.0},
]


@pytest.mark.parametrize(
    "algorithm", [a for a in ("fedavg", "ifca", "fedem", "scaffold", "fedsoft") if a in ALGORITHMS]
)
def test_no_noise_and_no_clipping_is_the_undefended_run(algorithm):
    """Two epochs of several batches: order of batches, momentum and positions of requests must all be those of the plain run."""
    training = {"rounds": 2, "epochs": 2, "batch_size": 50, "lr": 0.1}
    plain = run(experiment(algorithm=algorithm, training=training), quiet=True)
    assert models(plain)
    for off in OFF:
        result = run(experiment(off, algorithm=algorithm, training=training), quiet=True)
        for one, other in zip(models(plain), models(result)):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_noise_changes_the_run_and_more_of_it_changes_it_more():
    plain = models(run(experiment(), quiet=True))[0]
    distances = []
    for epsilon in (100.0, 1.0):
        noisy = models(run(experiment({"name": "ldp", "epsilon": epsilon, "clip": 1e3}), quiet=True))[0]
        distances.append(float((noisy - plain).norm()))
    assert 0 < 10 * distances[0] < distances[1]


def test_the_ledger_reaches_result_json(tmp_path):
    result = run(experiment({"name": "afc", "epsilon": 2.0}), out=tmp_path, quiet=True)
    written = json.loads((tmp_path / "result.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    entry = written["privacy"]["afc"]
    assert entry == json.loads(json.dumps(result.privacy["afc"]))
    assert entry["clients"] == 4 and entry["rounds"] == 2 and entry["total"]["releases"] == 2
    assert entry["per_step"]["claimed"] == 2.0 and entry["per_step"]["classic"] == pytest.approx(2 / 0.3)
    extra = [json.loads(line)["extra"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(record["clip"] > 0 and record["noise"] > 0 for record in extra)


def test_afc_feeds_back_on_itself_and_the_records_show_it():
    """Noise raises gradient norms, these raise C, C raises the noise: C and noise stand in every round's record."""

    def noted(epsilon: float) -> dict[str, list[float]]:
        records = run(
            experiment({"name": "afc", "epsilon": epsilon}, training=ONE_STEP | {"rounds": 8}), quiet=True
        ).records
        return {name: [record["extra"][name] for record in records] for name in ("clip", "noise")}

    quiet, loud = noted(math.inf), noted(0.05)
    assert quiet["noise"] == [0.0] * 8 and quiet["clip"][0] == pytest.approx(
        loud["clip"][0]
    )  # the first is before any noise
    assert loud["clip"][-1] > 1.5 * quiet["clip"][-1] and loud["clip"][-1] > 1.5 * loud["clip"][0]
    assert loud["noise"][-1] / loud["noise"][0] == pytest.approx(loud["clip"][-1] / loud["clip"][0], rel=0.1)


@pytest.mark.parametrize("defence", ["ldp", "adp", "afc", "dp_sgd"])
def test_clients_with_one_sample_are_defended_too(defence):
    alone = experiment({"name": defence}, partition={"name": "label_sets", "samples": 1})
    result = run(alone, quiet=True)
    assert all(bool(torch.isfinite(model).all()) for model in models(result))
    assert result.privacy[defence]["clients"] == 4


@pytest.mark.parametrize(
    ("defence", "says"),
    [
        ("name=afc beta=1", "defence.beta is 1.0"),
        ("name=afc beta=0.5", "defence.beta is 0.5"),
        ("name=ldp epsilon=0", "defence.epsilon is 0.0"),
        ("name=adp epsilon=-2", "defence.epsilon is -2.0"),
        ("name=afc delta=0", "defence.delta is 0.0"),
        ("name=ldp delta=1", "defence.delta is 1.0"),
    ],
)
def test_the_command_line_refuses_in_one_sentence(defence, says, capsys):
    sets = [part for pair in defence.split() for part in ("--set", f"defence.{pair}")]
    code = main(["run", *sets, "--out", "never-written"])
    sentence = capsys.readouterr().err.strip()
    assert code == 2 and says in sentence and "\n" not in sentence and not Path("never-written").exists()


def test_afc_goes_on_from_a_checkpoint_with_its_history(tmp_path):
    setting = experiment({"name": "afc", "epsilon": 50.0}, training=ONE_STEP | {"rounds": 4})

    def interrupt(record, state):
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(setting, out=tmp_path, callbacks=[interrupt], quiet=True)
    resumed = run(setting, out=tmp_path, resume=True, quiet=True)
    whole = run(setting, quiet=True)
    torch.testing.assert_close(models(resumed)[0], models(whole)[0], rtol=0, atol=1e-6)
    assert resumed.privacy == whole.privacy


def test_processes_do_not_change_a_defended_run():
    defence = {"name": "afc", "epsilon": 20.0}
    alone = run(experiment(defence), quiet=True)
    together = run(experiment(defence, engine={"workers": 2}), quiet=True)
    torch.testing.assert_close(models(alone)[0], models(together)[0], rtol=1e-4, atol=1e-5)
    assert alone.privacy["afc"]["epsilon"] == together.privacy["afc"]["epsilon"]


@dataclass(frozen=True)
class RenamedLDP(LDP):
    name: ClassVar[str] = "renamed_ldp"


@dataclass(frozen=True)
class RenamedAFC(AFC):
    name: ClassVar[str] = "renamed_afc"


@pytest.mark.parametrize("renamed", [RenamedLDP, RenamedAFC])
def test_a_defence_by_another_name_draws_the_same_noise(renamed: type) -> None:
    first, second = (run(experiment(defence), quiet=True) for defence in (renamed.__base__(), renamed()))
    assert torch.equal(first.state.models, second.state.models)
