"""Broken mechanisms are caught, sound ones are not, on the code that runs. All by softmax regression on digits, a step a round."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from covey.algorithms.contract import Client, Coroutine
from covey.audit.canaries import LedgerTest, audit_ledger, worlds
from covey.audit.canaries.shown import lines, section
from covey.audit.canaries.verdict import DOUBTED, NOT_REFUTED, NOTHING_CLAIMED, REFUTED, in_words
from covey.cli.main import main
from covey.crypto.noise.source import KeyedNoise
from covey.defences.afc import AFC
from covey.defences.dp_sgd import DPSGD
from covey.defences.ldp import ADP, LDP
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Plan, Train
from covey.ledger.calibration import analytic_epsilon

DP_SGD, LOCAL = DPSGD(noise=2.0), LDP(epsilon=4.0)


def experiment(defence: Any, **more: Any) -> Experiment:
    training = {"rounds": 2, "epochs": 0, "steps": 1, "batch_size": 0, "lr": 0.1}
    usual = {"algorithm": "fedavg", "model": "softmax", "clients": 30, "clusters": 1, "training": training}
    return Experiment.of({**usual, "partition": {"name": "label_sets"}, **more, "defence": defence})


def two_worlds(defence: Any, trials: int, **more: Any) -> LedgerTest:
    return audit_ledger(experiment(defence, **more), trials=trials)[0]


# ---------------------------------------------------------------- broken ones


def planned(defence: Any, change: Callable[[Plan], Plan]) -> Any:
    """The defence, but for what its clients are told to do."""

    class Changed(type(defence)):  # type: ignore[misc]
        def train(self, me: Client, work: Train) -> Coroutine:
            turn, answer = super().train(me, work), None
            while True:
                try:
                    request = turn.send(answer)
                except StopIteration as stop:
                    return stop.value
                answer = yield replace(request, plan=change(request.plan))

    return Changed(**vars(defence))


@dataclass(frozen=True)
class Weaker(KeyedNoise):
    factor: float = 1.0

    def gaussian(self, values: Any, scale: Any, *purpose: int | str) -> Any:
        return super().gaussian(values, self.factor * scale, *purpose)


def noised(defence: Any, source: Callable[[Client], KeyedNoise]) -> Any:
    """The defence, but for where its clients' noise comes from."""

    class Noised(Client):
        noise = property(source)  # type: ignore[assignment]

    class Changed(type(defence)):  # type: ignore[misc]
        def train(self, me: Client, work: Train) -> Coroutine:
            me.__class__ = Noised
            return (yield from super().train(me, work))

    return Changed(**vars(defence))


class Understated(DPSGD):
    """Books three times the noise that it adds: an accountant that claims too little."""

    def train(self, me: Client, work: Train) -> Coroutine:
        model = yield from super().train(me, work)
        me.events[:] = [replace(event, noise=3 * event.noise) for event in me.events]
        return model


BROKEN = {
    "half the noise in steps": (planned(DP_SGD, lambda p: replace(p, noise=p.noise / 2)), 2000),
    "no clipping in steps": (planned(DP_SGD, lambda p: replace(p, clip=1e3 * p.clip, noise=p.noise / 1e3)), 300),
    "too little claimed": (Understated(noise=2.0), 2000),
    "half the noise on models": (noised(LOCAL, lambda me: Weaker((me.seed, me.round, me.id), 0.5)), 1000),
    "half the adaptive noise": (noised(ADP(epsilon=4.0), lambda me: Weaker((me.seed, me.round, me.id), 0.5)), 1000),
    "no clipping before noise": (planned(LOCAL, lambda p: replace(p, clip=0.0)), 300),
    "noise of every round the same": (noised(LOCAL, lambda me: KeyedNoise((me.seed, me.id))), 300),
    "noise of all clients the same": (noised(LOCAL, lambda me: KeyedNoise((me.seed, me.round))), 300),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_mechanism_is_refuted(fault: str) -> None:
    defence, trials = BROKEN[fault]
    test = two_worlds(defence, trials)
    assert test.verdict == REFUTED
    assert "THE CLAIM IS REFUTED" in in_words(test) and test.refutation


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", [lambda me: Weaker((me.seed, me.round, me.id), 0.5), lambda me: KeyedNoise((me.seed, me.id))]
)
def test_broken_noise_on_coefficients_takes_more_trials(source: Callable[[Client], KeyedNoise]) -> None:
    """AFC claims a large ε for what it adds, so 1,000 trials do not refute it; 4,000 do."""
    assert two_worlds(noised(AFC(epsilon=4.0), source), 4000).verdict == REFUTED


def test_noise_of_steps_drawn_alike_in_every_round_is_seen_through_a_hidden_layer() -> None:
    """Keyed noise of a step follows from client and round: a client that repeats its round repeats its noise."""

    class Stuck(DPSGD):
        def train(self, me: Client, work: Train) -> Coroutine:
            model = yield from super().train(me, work)
            first = me.memory.setdefault("first", model - work.start)
            drawn = replace(work, plan=replace(work.plan, clip=self.clip, noise=0.0))
            exact = yield drawn
            noise = me.memory.setdefault("noise", first - (exact - work.start))
            return exact + noise

    assert two_worlds(Stuck(noise=2.0), 300, model="fcnn").verdict == REFUTED


# ---------------------------------------------------------------- sound ones


@pytest.mark.parametrize("defence", [DP_SGD, LOCAL, ADP(epsilon=4.0), AFC(epsilon=4.0)], ids=lambda d: str(d.name))
def test_a_sound_mechanism_is_not_refuted(defence: Any) -> None:
    tests = audit_ledger(experiment(defence), trials=700)
    assert [test.method for test in tests] == ["two worlds", "one run"]
    for test in tests:
        assert test.mechanism == defence.name and test.verdict == NOT_REFUTED
        assert test.claimed is not None and 0 < test.shown < test.claimed and test.shown <= test.most
        assert "proves nothing" in in_words(test)


def test_what_is_shown_of_a_tight_mechanism_is_near_its_claim() -> None:
    """One release with the longest canary there is: as Gaussian noise it shows most of what it costs."""
    test = two_worlds(DPSGD(noise=0.5), 1000)
    assert test.claimed is not None and test.as_gaussian is not None
    assert 0.75 * test.claimed < test.as_gaussian < test.claimed


def test_secret_noise_is_tested_too() -> None:
    tests = audit_ledger(experiment(LOCAL), trials=200, deployed=True)
    assert all(test.deployed and test.verdict == NOT_REFUTED for test in tests)
    assert "secret noise" in in_words(tests[0])


def test_sampled_batches_are_priced_by_their_sampling() -> None:
    sampled = replace(DP_SGD, sampling="poisson")
    plan = {"rounds": 1, "epochs": 0, "steps": 4, "batch_size": 20, "lr": 0.1}
    test = two_worlds(sampled, 600, training=plan)
    whole = two_worlds(DP_SGD, 600, training={**plan, "batch_size": 0})
    assert test.verdict == NOT_REFUTED
    assert test.claimed is not None and whole.claimed is not None and test.claimed < whole.claimed


def test_tests_repeat() -> None:
    first, second = (audit_ledger(experiment(LOCAL), trials=100) for _ in range(2))
    assert first == second


def test_a_false_alarm_is_as_rare_as_it_says() -> None:
    """A mechanism at the very edge of its claim, 200 times: one test in a thousand may err, 5 % may show more than there is."""
    rng, apart, delta, trials = np.random.default_rng(5), 1.0, 1e-5, 300
    curve = {d: analytic_epsilon(1 / apart, d) for d in (delta, 0.01, 0.1, 0.2, 0.3)}
    alarms = above = 0
    for _ in range(200):
        there = rng.permutation(np.arange(trials) % 2 == 0)
        seen = worlds.compare(rng.standard_normal(trials) + apart * there, there, curve, delta)
        alarms += seen.refuted
        above += seen.as_gaussian > curve[delta]
    assert alarms <= 2 and above <= 16


# ---------------------------------------------------------------- records


def records(epsilon: float, **more: Any) -> Experiment:
    algorithm = {"name": "pqfed", "epsilon": epsilon, "components": 2, "strategy": "all", **more}
    return experiment(None, algorithm=algorithm, partition={"name": "label_sets", "public": 40})


@pytest.mark.parametrize("sensitivity", ["public", "data"])
def test_noised_records_are_tight(sensitivity: str) -> None:
    two, one = audit_ledger(records(0.5, sensitivity=sensitivity), trials=4000)
    assert two.claimed == one.claimed == pytest.approx(1.0)
    assert 0.7 < two.shown <= 1.0 and two.verdict == one.verdict == NOT_REFUTED


def test_half_the_noise_on_records_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = KeyedNoise.laplace
    monkeypatch.setattr(
        KeyedNoise, "laplace", lambda self, values, scale, purpose: whole(self, values, scale / 2, purpose)
    )
    assert audit_ledger(records(0.5), trials=2000)[0].verdict == REFUTED


def test_a_claim_too_large_to_test_says_so() -> None:
    two, _ = audit_ledger(records(20.0), trials=500)
    assert not two.refutable and two.shown == pytest.approx(two.most, abs=0.5)
    assert "no guesser could refute" in in_words(two)


def test_secret_noise_on_records() -> None:
    two, _ = audit_ledger(records(0.5), trials=1000, deployed=True)
    assert two.deployed and two.verdict == NOT_REFUTED


# ---------------------------------------------------------------- what users see


def test_nothing_to_test() -> None:
    assert audit_ledger(experiment(None)) == []
    assert audit_ledger(experiment({"name": "dropout"})) == []


def test_too_few_trials() -> None:
    with pytest.raises(CoveyError, match="3 trials"):
        audit_ledger(experiment(LOCAL), trials=3)


def test_no_noise_claims_nothing() -> None:
    test = two_worlds(DPSGD(noise=0.0), 60)
    assert test.claimed is None and test.verdict == NOTHING_CLAIMED


@pytest.mark.parametrize("algorithm", ["mingledpie", "fedem"])
def test_other_protocols_are_tested_by_their_training(algorithm: str) -> None:
    """One seals what it sends, the other refuses to start from one model."""
    tests = audit_ledger(experiment(LOCAL, algorithm=algorithm, clusters=2), trials=60)
    assert tests[0].mechanism == "ldp"


def made(**more: Any) -> LedgerTest:
    usual = {"mechanism": "ldp", "method": "two worlds", "rounds": 1, "claimed": 1.0, "delta": 1e-5, "shown": 0.5}
    return LedgerTest(**{**usual, "most": 5.0, "trials": 10, "guesses": "3 of 4", "deployed": False, **more})


def test_words_and_storage() -> None:
    assert made(shown=1.2).verdict == DOUBTED
    refuted = made(shown=2.0, refuted=True, refutation="at δ 0.1 …")
    assert lines([refuted])[0].startswith("!!! The ε that the ledger claims for LDP is refuted")
    page = section([refuted])
    assert (
        page is not None
        and "THE CLAIM IS REFUTED" in page.body
        and ">CLAIM REFUTED<" in page.body
        and section([]) is None
    )
    assert LedgerTest.of(json.loads(json.dumps(refuted.json()))) == refuted


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set=model=softmax", "--set=training.rounds=1", "--set=training.steps=1", "--set=training.batch_size=0"]
    code = main(["audit", "ifca-digits", *sets, "--set=defence.name=ldp", "--ledger", "--trials", "40", "--json"])
    assert code == 0
    [two, one] = json.loads(capsys.readouterr().out)["ledger"]
    assert (two["trials"], two["method"], one["method"]) == (40, "two worlds", "one run")
    assert main(["audit", "ifca-digits", *sets, "--ledger"]) == 0
    assert "books nothing" in capsys.readouterr().out
    assert main(["audit", "ifca-digits", "--deployed"]) == 2
    assert "add --ledger" in capsys.readouterr().err
