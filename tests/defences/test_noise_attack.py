"""The coordinator against the noise: from two numbers of an answer to the key of its stream, and all of it taken off.

It succeeds on keyed noise in under a second (a word of SplitMix64 gives both numbers of a Box-Muller pair, 48 of its 64 bits
are read off them, the rest is tried out), and must find nothing in what a silo answers.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from covey.defences.dp_sgd import DPSGD
from covey.defences.ldp import LDP
from covey.deploy.silo import Silo
from covey.errors import CoveyError
from covey.learn.work import Plan
from covey.randomness import bits, normals
from support.deployment import Deployment, rehearsal

Words = NDArray[np.uint64]
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
STEP = Plan(lr=0.1, steps=1, batch_size=20)
WINDOW = 3  # neighbours of what was read off a number, since it is a float32


def recovered_key(noise: NDArray[np.float64], checked: int = 64) -> int | None:
    """The key whose `normals` these are, from positions 0 and half; None if there is none. `checked` others confirm it."""
    half = (len(noise) + 1) // 2
    across, up = float(noise[0]), float(noise[half])
    radius = round(math.exp(-(across**2 + up**2) / 2) * 2**24 - 0.5)
    angle = round((math.atan2(up, across) % (2 * math.pi)) / (2 * math.pi) * 2**24 - 0.5)
    near = np.arange(-WINDOW, WINDOW + 1)
    high = ((radius + near) % 2**24).astype(np.uint64)[:, None] << np.uint64(40)
    middle = ((angle + near) % 2**24).astype(np.uint64)[None, :] << np.uint64(16)
    words = (high | middle).reshape(-1, 1) | np.arange(2**16, dtype=np.uint64)  # the low 16 bits are not in the numbers
    keys = unmixed(words.ravel()) - np.uint64(GOLDEN)
    keys = keys[keys < 2**63]
    for at in range(1, 1 + checked):  # a few rounds leave one, or none
        keys = keys[np.abs(across_at(keys, at) - noise[at]) < 1e-3]
        if not len(keys):
            return None
    return int(keys[0])


def across_at(keys: Words, position: int) -> NDArray[np.float64]:
    """The first number of the pair that each key draws at a position."""
    with np.errstate(over="ignore"):
        z = keys + np.uint64((position + 1) * GOLDEN % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
        z = z ^ (z >> np.uint64(31))
    radius, angle = (z >> np.uint64(40)) + 0.5, ((z >> np.uint64(16)) & np.uint64(0xFFFFFF)) + 0.5
    return np.asarray(np.sqrt(-2 * np.log(radius * 2.0**-24)) * np.cos(2 * np.pi * angle * 2.0**-24))


def unmixed(z: Words) -> Words:
    """SplitMix64's finaliser backwards."""
    with np.errstate(over="ignore"):
        z = unshifted(z, 31) * np.uint64(pow(MIX_2, -1, 2**64))
        z = unshifted(z, 27) * np.uint64(pow(MIX_1, -1, 2**64))
        return unshifted(z, 30)


def unshifted(z: Words, by: int) -> Words:
    """x of z = x ^ (x >> by)."""
    x = z
    for _ in range(64 // by):
        x = z ^ (x >> np.uint64(by))
    return x


@dataclass(frozen=True)
class Answer:
    """What a silo answered to a model of zeros, at which only the output biases have a gradient."""

    model: NDArray[np.float64]
    exact: NDArray[np.float64]  # what it would have answered without noise, clipped the same
    scale: float  # of the noise, public


def deployed(folder: Path, defence: Any, rehearsed: bool) -> Deployment:
    experiment = rehearsal("fedavg", training={"rounds": 1, "steps": 1, "batch_size": 20, "lr": 0.1})
    experiment = replace(experiment, defence=defence, deployment=replace(experiment.deployment, rehearsal=rehearsed))
    return Deployment(folder, experiment)


def answer_to_zeros(silo: Silo) -> Answer:
    """The coordinator chooses what it broadcasts: with all weights 0 no hidden unit moves, so almost all gradients are 0."""
    algorithm, host = silo.experiment.algorithm, silo.host
    zeros = replace(silo.setting, start=torch.zeros_like(silo.setting.start))
    broadcast = algorithm.broadcast(algorithm.start(zeros), silo.number)
    (outcome,) = host.run(1, [(silo.number, broadcast, STEP)])
    protected: Any = host.defence
    host.defence = DPSGD(clip=protected.clip, noise=0.0, sampling=getattr(protected, "sampling", "shuffled"))
    (bare,) = host.run(1, [(silo.number, broadcast, STEP)])
    host.defence = protected
    batch = min(20, int(host.federation.clients[silo.number].size))
    if isinstance(protected, LDP):
        scale = protected.sigma(1) * 2 * STEP.lr * protected.clip / batch
    else:
        scale = STEP.lr * protected.noise * protected.clip / batch
    return Answer(outcome.reply.model.double().numpy(), bare.reply.model.double().numpy(), scale)


def noise_taken_off(answer: Answer, defence: Any) -> NDArray[np.float64] | None:
    """The answer without its noise, as the coordinator gets it; None where no key was found."""
    sign = 1 if isinstance(defence, LDP) else -1  # DP-SGD's noise is on the gradient, which is subtracted
    stream = recovered_key(sign * answer.model / answer.scale)
    if stream is None:
        return None
    noise = normals([stream], len(answer.model))[0].double().numpy()
    return np.asarray(answer.model - sign * answer.scale * noise)


DEFENCES = [LDP(epsilon=1.0), DPSGD(noise=1.0), DPSGD(noise=1.0, sampling="poisson")]


def test_the_key_of_a_keyed_stream_is_read_off_two_numbers() -> None:
    for stream in (5, 2**62 + 12345, 987654321987654321):
        noise = normals([stream], 1001)[0].double().numpy()
        assert recovered_key(noise) == stream
    (step,) = bits([77], 1)[0].tolist()
    assert recovered_key(normals([step], 1001)[0].double().numpy()) == step
    assert recovered_key(np.random.Generator(np.random.PCG64(1)).normal(size=1001)) is None


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda d: f"{d.name} {getattr(d, 'sampling', '')}")
def test_keyed_noise_comes_off_and_the_exact_gradient_is_left(tmp_path: Path, defence: Any) -> None:
    """A rehearsal's noise is keyed so that it repeats the simulation, and says so: this is why."""
    answer = answer_to_zeros(deployed(tmp_path, defence, rehearsed=True).parties["north"])
    bare = noise_taken_off(answer, defence)
    assert bare is not None
    size = float(np.abs(answer.exact).max())
    assert size > 1e-4 and np.linalg.norm(answer.model - answer.exact) > 10 * np.linalg.norm(answer.exact)
    assert float(np.abs(bare - answer.exact).max()) < 1e-3 * size


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda d: f"{d.name} {getattr(d, 'sampling', '')}")
def test_a_silos_noise_stays_on(tmp_path: Path, defence: Any) -> None:
    answer = answer_to_zeros(deployed(tmp_path, defence, rehearsed=False).parties["north"])
    noise = (answer.model - answer.exact) / answer.scale
    assert float(noise.std()) == pytest.approx(1.0, rel=0.05)  # as much as was promised; 0.05 is 8 standard errors
    assert noise_taken_off(answer, defence) is None


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda d: f"{d.name} {getattr(d, 'sampling', '')}")
def test_a_restored_state_never_draws_the_same_noise_again(tmp_path: Path, defence: Any) -> None:
    deployment = deployed(tmp_path, defence, rehearsed=False)
    deployment.coordinator().run()
    state = tmp_path / "state" / "north"
    kept = (state / "state.bin").read_bytes()
    answers = []
    for attempt in range(2):  # the same state twice, each asked the same question
        folder = tmp_path / f"restored-{attempt}"
        shutil.copytree(state, folder)
        assert (folder / "state.bin").read_bytes() == kept
        shutil.rmtree(state)
        shutil.copytree(folder, state)
        answers.append(answer_to_zeros(deployment.silo("north")).model)
    one, other = answers
    assert float(np.abs(np.corrcoef(one, other)[0, 1])) < 0.1


def test_pqfeds_features_get_secret_noise_in_a_silo(tmp_path: Path) -> None:
    algorithm = {"name": "pqfed", "components": 8, "k": 3, "strategy": "all", "epsilon": 1.0}
    experiment = rehearsal(algorithm)
    rows = {}
    for rehearsed in (True, False):
        changed = replace(experiment, deployment=replace(experiment.deployment, rehearsal=rehearsed))
        silo = Deployment(tmp_path / str(rehearsed), changed).parties["north"]
        broadcast = silo.experiment.algorithm.broadcast(silo.experiment.algorithm.start(silo.setting), silo.number)
        outcomes = [silo.host.run(1, [(silo.number, broadcast, STEP)])[0] for _ in range(2)]
        rows[rehearsed] = [outcome.reply.rows.double() for outcome in outcomes]
        assert [event.secret for outcome in outcomes for event in outcome.events] == [not rehearsed] * 2
        assert all((event.rounding > 0) is not rehearsed for outcome in outcomes for event in outcome.events)
    assert torch.equal(*rows[True])
    one, other = rows[False]
    assert one.shape == other.shape and float((one == other).double().mean()) < 0.01


def test_a_silos_summary_says_whose_noise_it_is(tmp_path: Path) -> None:
    for rehearsed, word in ((True, "keyed: reproducible, not secret"), (False, "secret: from the operating system")):
        deployment = deployed(tmp_path / word[:3], LDP(epsilon=1.0), rehearsed)
        deployment.coordinator().run()
        entry = json.loads((tmp_path / word[:3] / "state" / "north" / "summary.json").read_text())["privacy"]["ldp"]
        assert entry["noise"].startswith(word) and ("keyed" in entry["caveat"]) is rehearsed


def test_a_model_whose_rounding_would_show_the_data_is_refused(tmp_path: Path) -> None:
    """In weights of 10^5 float32 knows steps of 2^-7 only: whether an update of 10^-3 is lost or not outshines noise of 10^-3."""
    silo = deployed(tmp_path, LDP(epsilon=8.0), rehearsed=False).parties["north"]
    algorithm, host = silo.experiment.algorithm, silo.host
    huge = replace(silo.setting, start=torch.full_like(silo.setting.start, 1e5))
    plan = replace(STEP, lr=0.01)
    with pytest.raises(CoveyError, match="so large that rounding"):
        host.run(1, [(silo.number, algorithm.broadcast(algorithm.start(huge), silo.number), plan)])
    (outcome,) = host.run(1, [(silo.number, algorithm.broadcast(algorithm.start(silo.setting), silo.number), plan)])
    (event,) = outcome.events  # of usual size it is answered, and the rounding priced
    assert 0 < event.rounding * event.sigma < 0.1


def test_rounding_a_large_model_shows_what_noise_should_hide() -> None:
    """Two updates that differ by less than the noise's scale leave float32 apart by 2^-7, eight scales, or not at all."""
    start, scale = torch.tensor([1e5]), 1e-3
    one, other = start - 0.0038, start - 0.0040
    assert float((one - other).abs()) == 2.0**-7 > 7 * scale
