"""The frontier: what is swept follows from declarations, the front and the sentence from figures; one small sweep end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from covey.algorithms.contract import Client
from covey.attacks.finding import Finding
from covey.audit.frontier import frontier, write_frontier
from covey.audit.frontier.front import (
    Weighed,
    affordable,
    front,
    groups,
    loss,
    lowered,
    movable,
    on_front,
    on_overall_front,
    verdict_words,
)
from covey.audit.frontier.frontier import Frontier, Gauge
from covey.audit.frontier.lines import lines_of
from covey.audit.frontier.text import lines
from covey.cli.main import main
from covey.defences import DEFENCES
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Train
from covey.rounds import completion
from covey.strength import Strength, strengths_of
from support.audits import small
from support.frontiers import FIGURES, point, score, swept


def test_the_front_is_what_no_other_beats_in_everything() -> None:
    known = [Weighed(0.9, 0.5, 1.0), Weighed(0.8, 0.5, 1.0), Weighed(0.8, 0.5, 0.9), None, Weighed(0.9, 0.5, 1.0)]
    assert front(known) == [True, False, True, False, True]
    a2, a1 = FIGURES.gauges
    assert on_front(FIGURES, a2) == [True, True, True, False]
    assert on_front(FIGURES, a1) == [True, False, False, False]  # nothing moves it: whoever is accurate leads
    assert on_overall_front(FIGURES) == [True, True, True, False]


def test_what_no_setting_moves_decides_nothing_and_luck_moves_nothing() -> None:
    assert [gauge.attack for gauge in movable(FIGURES)] == ["a2"]
    assert lowered(score(0.6), score(0.49)) and not lowered(score(0.6), score(0.55)) and not lowered(score(0.6), None)
    error = Finding("e", "server", "error", 0.1, 1.0, 0.05, 0.15, perfect=0.0)
    assert lowered(error, Finding("e", "server", "error", 0.6, 1.0, 0.5, 0.7, perfect=0.0))


def test_what_one_can_afford_is_paired_by_seed_and_says_what_stays() -> None:
    cost = loss(FIGURES, FIGURES.points[1])
    assert cost is not None and cost.value == pytest.approx(0.02) and cost.n == 2
    assert affordable(FIGURES) is FIGURES.points[1] and affordable(FIGURES, 0.2) is FIGURES.points[2]
    words = " ".join(verdict_words(FIGURES))
    assert "For at most 5 points of accuracy, the most that one gets here is Noise, σ = 1: accuracy 96.0" in words
    assert "row of a2 by a2: 1.00 becomes 0.60; guessing 0.20, which still leaks" in words
    assert "No setting here surely lowers row of a1 (by a1)" in words and "may still be learned" in words
    dear = swept(FIGURES.points[0], FIGURES.points[3])
    assert affordable(dear) is None
    assert "nothing that was tried lowers any of these attacks by more than luck. The least that" in " ".join(
        verdict_words(dear)
    )
    assert verdict_words(swept(FIGURES.points[0]))[0].startswith("Nothing that was tried lowers any")


def test_what_an_algorithm_does_by_itself_is_compared_with_its_own_weakest() -> None:
    own = swept(*FIGURES.points[1:], by_itself=True)
    cost = loss(own, own.points[1])
    assert cost is not None and cost.value == pytest.approx(0.15)


def test_attacks_that_score_alike_are_one_picture(tmp_path: Path) -> None:
    twice = swept(
        *(point(p.line, p.value, p.accuracies, *(score(1.0, attack=a) for a in "xy")) for p in FIGURES.points)
    )
    alike = Frontier(**{**vars(twice), "gauges": tuple(Gauge(a, "server", "one row", "accuracy") for a in "xy")})
    assert [[gauge.attack for gauge in group] for group in groups(alike)] == [["x", "y"]]
    page = write_frontier(FIGURES, tmp_path, "covey audit x --frontier")[1].read_text()
    assert page.count('class="chart lines scatter"') == 2 and "Row of a2: a2" in page
    stored = json.loads((tmp_path / "frontier.json").read_text())["frontier"]
    assert Frontier.of(stored) == Frontier(**{**vars(FIGURES), "heading": {**FIGURES.heading, "notes": []}})


def test_what_is_swept_is_declared() -> None:
    for name, kind in DEFENCES.items():
        for strength in strengths_of(kind):
            for value in strength.grid:
                assert getattr(kind(**{strength.option: value}), strength.option) == value, name
    plain = {line.name for line in lines_of(small())}
    assert {"ldp", "adp", "afc", "dp_sgd"} <= plain and not plain & {"dropout", "l2"}
    mingled = Experiment.of(small().table(), algorithm={"name": "mingledpie", "threshold": 1})
    rate, threshold = [line for line in lines_of(mingled) if line.by_itself]
    assert (rate.name, threshold.name) == ("mingledpie.rate", "mingledpie.threshold")
    assert all(s.experiment.algorithm.threshold == 1 for s in rate.settings)  # what the experiment sets stays
    (features,) = lines_of(Experiment.of(small().table(), algorithm="pqfed"), ["pqfed"])
    assert math.isinf(features.settings[0].experiment.algorithm.epsilon)
    own = Experiment.of(small().table(), defence={"name": "ldp", "clip": 3.0})
    (line,) = lines_of(own)
    assert [s.experiment.defence.clip for s in line.settings] == [3.0] * len(line.settings)
    (chosen,) = lines_of(mingled, ["mingledpie.rate=0.25,0.5"])
    assert [s.words for s in chosen.settings] == ["MingledPie, p = 0.25", "MingledPie, p = 0.5"]


@dataclass(frozen=True)
class Quieter:
    name: ClassVar[str] = "quieter"
    title: ClassVar[str] = "trains with a smaller step"
    strengths: ClassVar[tuple[Strength, ...]] = (Strength("share", (0.5, 0.1)),)

    share: float = 0.5

    def train(self, me: Client, work: Train) -> Generator[Train, Any, Any]:
        return (yield work)


@dataclass(frozen=True)
class Twice:
    name: ClassVar[str] = "twice"
    strengths: ClassVar[tuple[Strength, ...]] = (Strength("share", (0.5, 0.5)),)

    share: float = 0.5


def test_a_defence_of_ones_own_is_swept_by_its_path() -> None:
    path = f"{__name__}:Quieter"
    (line,) = lines_of(small(), [path])
    assert [s.words for s in line.settings] == ["Quieter, share = 0.5", "Quieter, share = 0.1"]
    assert [s.experiment.defence.share for s in line.settings] == [0.5, 0.1]
    with pytest.raises(CoveyError, match="two or more, each once"):
        strengths_of(Twice)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ldpp"], "there is no protection 'ldpp' here, did you mean 'ldp'"),
        (["ldp.clip"], "ldp has no strength 'clip'"),
        (["ldp=1,x"], "expected numbers, each once"),
        (["ldp=1,1"], "expected numbers, each once"),
        (["ldp", "ldp=1,2"], "names 'ldp' twice"),
        (["ldp=-1,2"], "epsilon"),
        (["ifca"], "ifca declares no strength"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(CoveyError, match=said.replace("(", r"\(")):
        lines_of(small(), words)


def test_a_small_frontier_from_command_to_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = small(algorithm="fedavg", training={"rounds": 2}, seeds=2)
    made = frontier(experiment, tmp_path, ["ldp=100,0.01"], quiet=True)
    assert [p.words for p in made.points] == ["no defence", "LDP, ε = 100", "LDP, ε = 0.01"]
    assert not any(p.problem for p in made.points) and all(len(p.accuracies) == 2 for p in made.points)
    assert "a2" in {gauge.attack for gauge in made.gauges}
    bare, _, strong = made.points
    assert strong.leaks["a2"].value < bare.leaks["a2"].value and strong.accuracy.value < bare.accuracy.value
    assert list(strong.claimed) == ["ldp"] and not bare.claimed
    text = "\n".join(lines(made))
    assert "LDP, ε = 0.01" in text and "may still be learned" in " ".join(text.split())

    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a finished run is read back")

    monkeypatch.setattr(completion, "run", never)
    assert frontier(experiment, tmp_path, ["ldp=100,0.01"], quiet=True) == made
    (tmp_path / "e.toml").write_text(experiment.toml())
    arguments = ["audit", str(tmp_path / "e.toml"), "--out", str(tmp_path), "--seeds", "2", "-q"]
    assert main([*arguments, "--frontier", "ldp=100,0.01"]) == 0
    assert "frontier.html" in capsys.readouterr().out
    assert main([*arguments, "ldp"]) == 2 and "add --frontier" in capsys.readouterr().err
    assert main([*arguments, "--frontier", "--matrix"]) == 2
