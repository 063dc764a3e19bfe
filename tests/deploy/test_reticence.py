"""Whether a silo refuses must not tell what masks, seals and noise hide: a coordinator chooses the models that it trains from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covey.algorithms.averaging import GlobalModel
from covey.algorithms.ifca import ClusterModels
from covey.crypto.noise.source import SecretNoise
from covey.deploy.letters import RoundReply
from support.deployment import Deployment, rehearsal

DIGITS, PIXELS = 10, 64
DEFENCE = {"name": "client_dp", "epsilon": 8.0, "delta": 1e-3, "survivors": 1.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.deploy.silo.REFUSAL_SECONDS", 0.0)


def at_the_edge(label: int) -> Tensor:
    """A model without an opinion, of which the bias of one label grows beyond the bound at a silo that has the label."""
    biases = torch.full((DIGITS,), 15.9)
    biases[label] = 16 - 1e-3
    return torch.cat([torch.zeros(DIGITS * PIXELS), biases])


def overflowing(first: int, second: int) -> Tensor:
    """A model that is no number after a sample in which both of these pixels are bright."""
    weights = torch.zeros(DIGITS, PIXELS)
    weights[0, first] = weights[0, second] = 1.2e38
    weights[0, 0] = -1.2e38
    return torch.cat([weights.reshape(-1), torch.tensor([1.2e38] + [0.0] * (DIGITS - 1))])


def answers(deployment: Deployment, broadcasts: list[Any]) -> list[bool]:
    """Whether silos answer, by round and silo."""
    mailbox = deployment.coordinator().session.mailbox
    given = []
    for round, broadcast in enumerate(broadcasts, 1):
        for number, name in enumerate(deployment.names):
            letter = mailbox.write("run", "round", f"client:{number}", round, broadcast)[0]
            given.append(isinstance(mailbox.read(deployment.parties[name].handle(letter)).letter.body, RoundReply))
    return given


def experiment(algorithm: Any, encryption: str, **more: Any) -> Any:
    real = {"rehearsal": False, "report_accuracy": False}
    training = {"rounds": 4, "epochs": 1}
    return rehearsal(algorithm, encryption=encryption, model="softmax", training=training, deployment=real, **more)


@pytest.mark.parametrize("algorithm", ["fedavg", "ifca"])
def test_refusals_under_masks_tell_no_labels(tmp_path: Path, algorithm: str) -> None:
    """They told all of them: north and south have the digits 0 to 4, and only they refused the models for these."""
    deployment = Deployment(tmp_path, experiment(algorithm, "secagg"))
    models = [*map(at_the_edge, (0, 4, 5)), overflowing(26, 20)]
    sent = [GlobalModel(m) if algorithm == "fedavg" else ClusterModels(torch.stack([m, m])) for m in models]
    assert all(answers(deployment, sent))
    assert sum("was cut to it before it was sealed" in line for line in deployment.said) >= 6


@pytest.mark.parametrize("encryption", ["secagg", "threshold"])
def test_refusals_tell_nothing_that_noise_hides(tmp_path: Path, encryption: str) -> None:
    """They told of single samples, once a round, whatever ε was: and nothing was booked for it."""
    algorithm = {"name": "fedavg", "weighting": "clients"}
    deployment = Deployment(tmp_path, experiment(algorithm, encryption, defence=DEFENCE))
    bright = {}
    for number, name in enumerate(deployment.names):
        host = deployment.parties[name].host
        x = host._data(host._rows.of(number, 1), True)[0].reshape(-1, PIXELS)
        bright[name] = [bool((x[:, j] + x[:, 20] > 1.83).any()) for j in range(PIXELS)]
    telling = [j for j in range(PIXELS) if len({own[j] for own in bright.values()}) == 2][:2]
    assert len(telling) == 2
    assert all(answers(deployment, [GlobalModel(overflowing(j, 20)) for j in telling]))
    assert any("zeros were added in their place" in line for line in deployment.said)
    assert all(len(silo.state.spends) == 2 for silo in deployment.parties.values())


def test_machines_refuse_what_is_no_number_unless_the_asker_judges_it(tmp_path: Path) -> None:
    """A reply in the clear is not hidden: its silo refuses, in words, as ever."""
    deployment = Deployment(tmp_path, experiment("fedavg", "none"))
    assert not any(answers(deployment, [GlobalModel(torch.full((DIGITS * (PIXELS + 1),), 1e38))]))
    assert any("local training gave values that are not finite" in line for line in deployment.said)
    assert all(isinstance(silo.host.secret, SecretNoise) for silo in deployment.parties.values())
