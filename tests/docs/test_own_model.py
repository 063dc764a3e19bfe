"""`examples/own_model.py` on the command line, resumed, and between silos: a model of one's own is used as covey's are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from covey import CoveyError, Experiment, run
from covey.cli.main import main
from covey.deploy.agreed import agree, network_of
from covey.deploy.model import load_model
from covey.learn.flat import Network
from covey.models.choice import model_of
from support.deployment import Deployment, rehearsal

EXAMPLES = Path(__file__).parents[2] / "examples"
WARD = {"name": "own_model:WardNet", "width": 2}


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    sys.modules.pop("own_model", None)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--set", "training.rounds=2", "--set", "engine.workers=1", "--set", "clients=4", "--set", "clusters=2"]
    words = ["run", str(EXAMPLES / "own_model.toml"), *few, "--out", str(tmp_path / "run"), "--json", "--quiet"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "own_model:WardNet (width 6)" and result["accuracy"]["client_mean"] > 0.3
    again = run(Experiment.read(tmp_path / "run" / "config.toml"), quiet=True)
    assert again.accuracy == result["accuracy"]
    refused = [*words[:2], *few, "--quiet", "--set", "defence=dp_sgd", "--out", str(tmp_path / "no")]
    assert main(refused) == 2
    said = capsys.readouterr().err.strip()
    assert "'features.1' computes with the whole batch" in said and "\n" not in said


@pytest.mark.parametrize("buffers", [pytest.param("shared", marks=pytest.mark.slow), "local"])
def test_silos_train_it_as_a_simulation_does(buffers: str, tmp_path: Path) -> None:
    experiment = rehearsal("ifca", clients=2, clusters=2, model=WARD, layers={"buffers": buffers})
    deployment = Deployment(tmp_path, experiment)
    result = deployment.coordinator().run()
    simulated = run(experiment, quiet=True)
    assert result.accuracy["client_mean"] == pytest.approx(simulated.accuracy["client_mean"], abs=1e-6)
    (state,) = {path.parent for path in tmp_path.rglob("model.bin") if "north" in str(path)}
    home = load_model(state)
    net = Network(model_of(home.network), tuple(home.shape), len(home.classes), buffers=buffers)
    assert home.models.shape[1] == net.size
    module = net.module().eval()
    net.write(home.models[home.index], module)
    assert module.features[1].running_mean.abs().sum() > 0  # its own statistics came home
    x = np.zeros((2, *home.shape), np.uint8)
    with torch.no_grad():
        expected = module(torch.zeros(2, 1, *home.shape)).softmax(1)
    assert home.probabilities(x) == pytest.approx(expected.numpy(), abs=1e-6)


def test_parties_must_have_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    import own_model

    agreed = agree(rehearsal("ifca", clients=2, clusters=2, model=WARD))
    assert network_of(agreed).d == agreed.start.shape[1]

    class Other(own_model.WardNet):
        def __init__(self, input_shape: tuple[int, int, int], outputs: int, width: int = 8) -> None:
            super().__init__(input_shape, outputs, width + 1)

    monkeypatch.setattr(own_model, "WardNet", Other)
    with pytest.raises(
        CoveyError, match=r"on this machine is not the one of this deployment's keys.*its layers differ"
    ):
        network_of(agreed)

    class Frozen(torch.nn.Module):
        shift = 0.0

        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.base = torch.nn.Linear(64, 4).requires_grad_(False)
            self.out = torch.nn.Linear(4, outputs)
            torch.nn.init.constant_(self.base.weight, self.shift)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.base(x.flatten(1)))

    monkeypatch.setattr(own_model, "WardNet", Frozen)
    agreed = agree(rehearsal("ifca", clients=2, clusters=2, model="own_model:WardNet"))
    monkeypatch.setattr(Frozen, "shift", 1.0)
    with pytest.raises(CoveyError, match="the values of what it does not train differ; restore the version"):
        network_of(agreed)
    with pytest.raises(CoveyError, match=r"no code travels.*put it in a module"):
        agree(rehearsal("ifca", clients=2, clusters=2, model=Frozen(10)))
