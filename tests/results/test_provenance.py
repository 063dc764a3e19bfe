"""What computed a run: recorded by the run, kept over a break, shown, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from covey.experiment.experiment import Experiment
from covey.results import provenance
from covey.results.folder import RunFolder, hash_of
from covey.results.provenance import MATTERS, UNKNOWN, code, in_words, kinds, mixed, sitting, summary
from covey.rounds.loop import run
from covey.rounds.result import read_result

DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 4,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 2, "epochs": 1, "batch_size": 20, "lr": 0.1},
    "engine": {"workers": 1, "checkpoint_every": 1},
}


def test_a_run_says_what_computed_it_also_after_a_break(tmp_path: Path) -> None:
    experiment = Experiment.of(DIGITS)

    def stop(record: dict[str, Any], state: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path, callbacks=[stop], quiet=True)
    run(experiment, out=tmp_path, resume=True, quiet=True)
    first, second = read_result(RunFolder(tmp_path)).provenance
    assert (first["from_round"], second["from_round"]) == (1, 2)
    assert first["begun"] <= second["begun"] <= second["ended"] and "ended" not in first
    for one in (first, second):
        assert one["code"] == code() and one["device"].startswith("cpu") and one["arithmetic"] == "ieee float32"
        assert one["kernel"] in ("linear", "loop", "stacked") and one["versions"]["torch"]
        assert one["data"].startswith("digits: 1,438 training and 359 test samples, sha256:")
    assert not mixed(kinds([[first, second]]))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Computed by, from round 2 on" in page and code() in page
    assert hash_of(experiment) == hash_of(RunFolder(tmp_path).experiment())  # a run is named by what was asked for


def test_code_that_only_shows_figures_is_not_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("learn/a.py", "papers/b.py", "version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(provenance, "SOURCES", tmp_path)
    fingerprint = provenance.code.__wrapped__
    before = fingerprint()
    (tmp_path / "papers/b.py").write_text("x = 2\n")
    assert fingerprint() == before
    (tmp_path / "learn/a.py").write_text("x = 2\n")
    assert fingerprint() != before
    before = fingerprint()
    (tmp_path / "learn/a.cu").write_text("// a kernel\n")
    assert fingerprint() != before


def test_what_differs_is_named() -> None:
    here = sitting("cpu", "linear", "tf32", first_round=1)
    there = here | {"device": "NVIDIA H200", "arithmetic": "tf32"}
    assert here["arithmetic"] == "ieee float32"  # a CPU has no TF32
    assert mixed(kinds([[here], [here]])) == ""
    assert mixed(kinds([[here], [there]])) == f"device: NVIDIA H200, {here['device']}; arithmetic: ieee float32, tf32"
    older = mixed(kinds([[here], []]))  # a run from before this was kept may be anything
    assert all(name in older for name in MATTERS) and UNKNOWN in older
    part, whole, other = (here | {"data": line} for line in ("a: 2 samples, x", "a: 5 samples, y", "b: 5 samples, y"))
    assert mixed(kinds([[part], [whole]])) == "data: a: 2 samples, x, a: 5 samples, y"
    assert mixed(kinds([[part], [other], [here]])) == ""  # a table may be on several datasets
    assert "a: 2 samples; " in in_words(summary([[part]], 1.0))
    said = in_words(summary([[here], [there]], 7200.0))
    assert "2 runs, 2.0 h in all" in said and "**Mixed**" in said
    assert "not recorded" in in_words({})
