"""A run that diverges is a result: kept, packed, shown in its row, and nothing is decided by the seeds that are left."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from covey.errors import CoveyError, NotFinite, Unavailable
from covey.experiment.experiment import Experiment
from covey.papers import harness, packing, pool, rehearsal
from covey.papers.cells import Sheet, at, cell
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.outcome import DIVERGED, Diverged, Outcome, completed, figures, finished, said
from covey.papers.pages.grid import grid
from covey.papers.rehearsal import Item, asked
from covey.papers.verdict import FAILS, HOLDS, UNDECIDED, Part, Statement, above, judge
from covey.results.folder import RunFolder
from covey.rounds.scoring import Scoring

STEPS = {0: 0.1, 1: 1e30, 2: 0.1}  # seed -> rate: the second one's values are soon not finite
TINY: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 3,
    "clusters": 1,
    "partition": {"name": "iid"},
}


def setting(lr: float) -> dict[str, Any]:
    return TINY | {"training": {"rounds": 2, "epochs": 1, "batch_size": 50, "lr": lr}}


def with_a_place(options: Options) -> Reproduction:
    """Says of a run that it diverged."""
    runs = [run for seed, lr in STEPS.items() for run in options.tried(setting(lr), 1, seed)]
    cells = [cell("a", "accuracy", figures(runs, lambda o: o.accuracy())), cell("b", "accuracy", [0.1, 0.2, 0.3])]
    return Reproduction("", "", "With", options.dataset, {}, cells, notes=said("a", runs))


def without(options: Options) -> Reproduction:
    """Needs every run."""
    runs = [run for seed, lr in STEPS.items() for run in options.run(setting(lr), 1, seed)]
    return Reproduction("", "", "Without", options.dataset, {}, [cell("a", "accuracy", [o.accuracy() for o in runs])])


def test_models_that_an_attack_asks_for_may_be_what_diverges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of tables compute them for nobody else; then it is the run that diverged, and no fault of the attack."""
    asked_for: list[int] = []

    def spoilt(*_: Any) -> Any:
        asked_for.append(1)
        raise NotFinite("the losses gave values that are not finite")

    monkeypatch.setattr(Scoring, "models", spoilt)
    for attacks, ended in (([], Outcome), (["label_flip"], Diverged)):
        one = Experiment.of(setting(0.1) | {"attacks": attacks})
        assert type(completed(one, RunFolder(tmp_path / str(ended)), quiet=True, figures_only=True)) is ended
        assert len(asked_for) == len(attacks)
    with pytest.raises(CoveyError, match="kept figures alone"):
        RunFolder(tmp_path / str(Outcome)).read_models()


def test_a_run_that_diverged_is_kept_packed_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "with": Table(with_a_place, ("digits",), lambda sheet: []),
        "without": Table(without, ("digits",), lambda sheet: []),
    }
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    options = Options(tmp_path, quiet=True, device="cpu")
    wanted = [Item("own", "with", "digits"), Item("own", "without", "digits")]
    needed = asked(wanted[0], options)
    assert len(needed.missing) == 3
    words = [pool._completed(one, False, options) for one in needed.missing.values()]
    assert [": diverged" in one for one in words] == [False, True, False]
    with tarfile.open(packing.pack(tmp_path)) as archive:
        assert sum(name.endswith(f"/{DIVERGED}") for name in archive.getnames()) == 1
    assert not any(asked(item, options).missing for item in wanted)  # it is not tried again

    (made,), lacking = pool.complete_tables(wanted, options)
    assert "a run diverged (seed 1), and this table has no place" in lacking[wanted[1]]
    one = made.cells[0]
    assert (one.n, one.diverged, len(one.values)) == (2, [1], 2) and made.runs["runs"] == 3
    assert len(made.runs["code"]) == len(made.runs["kernel"]) == 1  # recorded of the one that diverged, too
    assert "(2; 1 diverged)" in grid(made)[1][0][1]
    assert made.notes[0].startswith("a diverged in 1 of 3 seeds (seed 1: local training gave values")
    content = made.json()
    assert content["cells"][0]["diverged"] == [1] and "diverged" not in content["cells"][1]
    assert Reproduction.of(content).cells == made.cells

    with pytest.raises(CoveyError, match="has no place"):
        options.run(setting(1e30), 1, 1)
    attempt = options.attempt(setting(1e30), 1)
    assert isinstance(attempt, str) and "not finite" in attempt
    (path,) = tmp_path.glob(f"runs/*/{DIVERGED}")
    path.write_text("{")
    with pytest.raises(CoveyError, match=r"is damaged .* remove it, and the run is tried again"):
        options.tried(setting(1e30), 1, 1)


def test_seeds_that_are_left_decide_nothing() -> None:
    ours, rival = cell("ours", "x", [0.9, 0.91, 0.92]), cell("rival", "x", [0.5, None, 0.51])
    sheet = Sheet([ours, rival, cell("none", "x", [None, None, None])])
    clear = Statement("Ours is above.", [Part("", at("ours", "x") - at("rival", "x"), above())])
    claim = judge(clear, sheet)
    assert claim.verdict == UNDECIDED and "diverged in 1 of 3 seeds" in claim.why
    assert claim.effects[0].n == 2 and claim.effects[0].value == pytest.approx(40.5)  # of seeds 0 and 2, paired
    assert judge(clear, Sheet([ours, cell("rival", "x", [0.5, 0.505, 0.51])])).verdict == HOLDS
    worse = Part("another", at("rival", "x") - 0.99, above())
    assert judge(Statement("", [worse]), sheet).verdict == UNDECIDED
    fails = Part("another", at("ours", "x") - 0.99, above())
    assert judge(Statement("", [worse, fails]), sheet).verdict == FAILS  # by what needs no run that diverged
    gone = judge(Statement("", [Part("", at("none", "x"), above())]), sheet)
    assert gone.effects[0].value is None and gone.verdict == UNDECIDED
    assert "diverged in 3 of 3 seeds" in gone.why and "not measured" not in gone.why
    apart = Sheet([cell("ours", "x", [0.9, None]), cell("rival", "x", [None, 0.5])])  # no seed that both have
    assert judge(clear, apart).verdict == UNDECIDED and "diverged in 2 of 2 seeds" in judge(clear, apart).why
    assert finished([Diverged("why", 0)]) == [] and figures([Diverged("why", 0)], lambda o: 1.0) == [None]


RECORD = '{"round": 1, "accuracy": {}, "seconds": {}}'


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        (
            "result.json",
            '{"a": 1}',
            r"result\.json is damaged \(it does not tell accuracy, attacks, bytes, rounds, sec",
        ),
        ("result.json", '[{"a": 1}]', r"result\.json is damaged \(it holds no table\)"),
        ("result.json", '{"rounds": 2, "acc', r"result\.json is damaged \(Unterminated string"),
        ("result.json", "", r"result\.json is damaged \(Expecting value"),
        ("metrics.jsonl", f"{RECORD}\n{RECORD[:5]}", r"metrics\.jsonl is damaged \(1 of 2 rounds can be read\)"),
        ("metrics.jsonl", f"{RECORD}\n1\n{RECORD}", r"metrics\.jsonl is damaged \(1 of 2 rounds can be read\)"),
        ("metrics.jsonl", '{"round": 1}\n{"round": 2}', r"metrics\.jsonl is damaged \(0 of 2 rounds can be read\)"),
        ("metrics.jsonl", "\udcff", r"metrics\.jsonl is damaged \(0 of 2 rounds can be read\)"),
    ],
)
def test_a_finished_run_that_is_damaged_is_named_and_can_be_computed_again(
    name: str, content: str, found: str, tmp_path: Path
) -> None:
    """`--mixed` was once what a reader was told to say, and a traceback came of it."""
    options = Options(tmp_path, quiet=True, workers=1)
    (before,) = options.run(setting(0.1))
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / name).write_text(content, errors="surrogateescape")
    remedy = f"{found}.*: remove the folder {re.escape(str(folder))}, and the same command computes this run again$"
    for ask in (options.run, options.tried, lambda one: options.attempt(one, 0)):
        with pytest.raises(Unavailable, match=remedy):  # no table takes it for a run that it has to do without
            ask(setting(0.1))
    shutil.rmtree(folder)
    assert options.run(setting(0.1))[0].accuracy() == before.accuracy()


def test_a_run_that_was_interrupted_and_cannot_go_on_says_what_to_remove(tmp_path: Path) -> None:
    options = Options(tmp_path, quiet=True, workers=1)
    options.run(setting(0.1))
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "result.json").unlink()
    (part,) = (folder / "checkpoint").glob("state*.bin")
    part.write_bytes(part.read_bytes()[:200])
    with pytest.raises(
        Unavailable, match=r"checkpoint is damaged \(.*\): remove the folder .*, and repeat this command$"
    ):
        options.run(setting(0.1))
    shutil.rmtree(folder)
    assert options.run(setting(0.1))
