"""Attacks, rows and messages of somebody's own: they add to an audit, and never take from it what covey says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from torch import Tensor

from covey import leaks, roles
from covey.algorithms.fedavg import FedAvg
from covey.attacks import ATTACKS
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.integrity.poisoning import ModelPoisoning
from covey.audit.matrix import NOT_MEASURED, UNKNOWN
from covey.audit.questions import Questions, Watch, registered
from covey.audit.runs import audit, gather, heading
from covey.errors import CoveyError
from covey.leaks import CLIENT, SERVER, Leak
from covey.learn.work import Train, Work
from covey.messages import message
from covey.rounds.loop import run
from support.audits import matrix, small


@dataclass
class Watcher:
    name: ClassVar[str] = "watcher"
    row: ClassVar[Any] = leaks.MEMBERSHIP
    seen_from: ClassVar[Any] = (SERVER,)

    vantage: Any = "server"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        pass

    def observe(self, view: View) -> None:
        pass

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Any:
        return Finding(self.name, self.vantage, "share", 0.5, 0.5, 0.4, 0.6, {"none": 0.5}, "all")


class SameRow(Watcher):
    row = Leak("membership", "whether somebody pays a fee")


class SameName(Watcher):
    name = "a2"


class RowOfText(Watcher):
    row = "membership"


class ReadsText(Watcher):
    reads = ("a model",)


class FromNowhere(Watcher):
    seen_from = ("sever",)


REFUSED = {
    SameRow: "its row is named 'membership', and so is another one .*give yours another name",
    SameName: "attack 'a2' of .*SameName has the name of an attack of covey.*give it another name",
    RowOfText: "attack 'watcher': row is 'membership', expected a covey.leaks.Leak",
    ReadsText: r"attack 'watcher': reads is \('a model',\), expected a tuple of covey",
    FromNowhere: r"attack 'watcher': seen_from is \('sever',\), expected a tuple of 'server'",
}


def having(*attacks: Any, **changes: Any) -> Any:
    return replace(small(algorithm="fedavg", **changes), attacks=attacks)


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_would_hide_a_part_of_the_matrix_is_refused(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=REFUSED[kind]):
        audit(having(kind()), tmp_path, quiet=True)


def test_an_attack_without_a_vantage_is_refused_before_a_run() -> None:
    with pytest.raises(CoveyError, match="attack 'watcher': vantage is None, expected a party"):
        run(having(Watcher(vantage=None)), quiet=True)


@pytest.mark.parametrize("kind", [SameRow, RowOfText, ReadsText, FromNowhere], ids=lambda kind: kind.__name__)
def test_an_installed_attack_that_cannot_be_read_is_left_out_with_a_note(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, _ = ATTACKS.loaded()
    monkeypatch.setattr(ATTACKS, "loaded", lambda: ({**known, "watcher": kind}, ()))
    assert "watcher" not in Questions(small()).attacks and set(known) == set(registered()[0])
    (note,) = heading(small())["notes"]
    assert note.startswith("attack 'watcher'") and note.endswith("it is left out")


def test_an_installed_attack_that_needs_settings_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Needy(Watcher):
        def __post_init__(self) -> None:
            raise ValueError("no model named")

    monkeypatch.setattr(ATTACKS, "loaded", lambda: ({"watcher": Needy}, ()))
    assert registered() == (
        {},
        ("attack 'watcher' cannot be made without settings (no model named); it is left out",),
    )


class FailsAtOnce(Watcher):
    def begin(self, knowledge: Knowledge) -> None:
        raise ValueError("lost its way")


class FailsLooking(Watcher):
    def observe(self, view: View) -> None:
        raise ValueError("lost its way")


class FailsScoring(Watcher):
    def finding(self, truth: Truth) -> Any:
        raise ValueError("lost its way")


class ScoresText(Watcher):
    def finding(self, truth: Truth) -> Any:
        return "0.5"


@pytest.mark.parametrize("kind", [FailsAtOnce, FailsLooking, FailsScoring], ids=lambda kind: kind.__name__)
def test_a_fault_in_an_attack_is_one_sentence(kind: Any) -> None:
    with pytest.raises(CoveyError, match=r"^attack 'watcher' failed with ValueError: lost its way$"):
        run(having(kind(), training={"rounds": 1}), quiet=True)


def test_what_is_no_finding_is_said_to_be_none() -> None:
    with pytest.raises(CoveyError, match=r"its finding\(\) returned a str, expected a Finding"):
        run(having(ScoresText(), training={"rounds": 1}), quiet=True)


def test_a_fault_in_an_attack_costs_its_own_cell_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = ATTACKS.loaded()
    monkeypatch.setattr(ATTACKS, "loaded", lambda: ({name: known[name] for name in ("a1", "a2")}, ()))
    made = audit(having(FailsLooking(), training={"rounds": 1}), tmp_path, quiet=True)
    cell = made.cell("membership", SERVER)
    assert cell.verdict == NOT_MEASURED and "failed with ValueError: lost its way" in cell.why
    assert made.cell("label distribution", SERVER).tried


class CannotSayWhatItLacks(Watcher):
    @classmethod
    def lacks(cls, experiment: Any) -> str:
        raise ValueError("lost its way")


class CannotSayHow(Watcher):
    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        raise ValueError("lost its way")


@pytest.mark.parametrize("kind", [CannotSayWhatItLacks, CannotSayHow], ids=lambda kind: kind.__name__)
def test_a_declaration_that_fails_costs_its_own_cell_only(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = ATTACKS.loaded()
    monkeypatch.setattr(ATTACKS, "loaded", lambda: ({"a1": known["a1"]}, ()))
    experiment = having(kind())
    assert "watcher" not in {watch.attack for watch in Questions(experiment).watches()}
    cell = matrix(experiment, {}).cell("membership", SERVER)
    assert cell.verdict == NOT_MEASURED
    assert "watcher" in cell.why and "ValueError: lost its way" in cell.why


# ---------------------------------------------------------------- messages that say too little


@message
@dataclass(frozen=True)
class Talkative:
    model: Annotated[Tensor, roles.Model]
    hint: int


@dataclass(frozen=True)
class Unspoken(FedAvg):
    replies: ClassVar[Any] = (Talkative,)


def test_a_field_that_says_nothing_of_itself_is_no_unknown_attack() -> None:
    plain = matrix(small(algorithm="fedavg"), {})
    made = matrix(replace(small(algorithm="fedavg"), algorithm=Unspoken()), {})
    unknown = [cell for cell in plain.cells if cell.verdict == UNKNOWN]
    assert unknown and not any(cell.verdict == UNKNOWN for cell in made.cells)
    for cell in unknown:
        found = made.cell(cell.row, cell.column)
        assert (found.verdict, found.why) == (
            NOT_MEASURED,
            "field hint of Talkative says nothing of itself (give it a role)",
        )


def test_a_reply_that_is_not_declared_is_refused() -> None:
    experiment = replace(small(algorithm="fedavg"), algorithm=Unspoken(), attacks=())
    with pytest.raises(CoveyError, match=r"client:0 returned a .*, but the algorithm's `replies` declare Talkative"):
        run(experiment, quiet=True)


class Detonator(ModelPoisoning):
    name = "detonator"

    def _bent(self, work: Work, answer: Any) -> Any:
        return 1e30 * answer if isinstance(work, Train) else answer


@pytest.mark.parametrize("workers", [1, 2])
def test_an_attack_that_ends_the_run_is_harm_and_no_failure(workers: int, tmp_path: Path) -> None:
    """Others' training overflows under it: to call that "ended without a score" would leave the cell to weaker attacks."""
    watch, training = Watch("detonator", CLIENT), {"rounds": 4, "epochs": 1, "batch_size": 10, "lr": 0.1}
    ruined = having(Detonator(), training=training, engine={"workers": workers})
    gathered = gather(ruined, tmp_path, chosen={watch})
    score = gathered.score(watch)
    assert (score.value, score.verdict) == (1.0, "broken") and "train no more" in score.note
    assert "not finite" in score.note and not gathered.runs[0]["attacks"]  # the run beside it went through
