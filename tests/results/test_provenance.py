"""What computed a run: recorded by the run, kept over a break, shown, and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from covey.cli.main import main
from covey.experiment.experiment import Experiment
from covey.results import provenance
from covey.results.folder import RunFolder, hash_of
from covey.results.provenance import MATTERS, UNKNOWN, code, in_words, kinds, mixed, sitting, summary
from covey.rounds.loop import run
from covey.rounds.result import is_complete, read_result

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
    stacked, streams = (here | {"kernel": kernel} for kernel in ("stacked", "streams"))
    assert mixed(kinds([[stacked], [streams]])) == "kernel: stacked, streams"
    small, large = stacked | {"model": "cnn"}, streams | {"model": "resnet18"}
    assert mixed(kinds([[small], [large]])) == ""  # a table may compare models, each with its kernel
    assert kinds([[small], [large]])["kernel"] == ["cnn: stacked", "resnet18: streams"]
    assert kinds([[small], [stacked | {"model": "cnn5"}]])["kernel"] == ["stacked"]
    assert mixed(kinds([[small], [large], [streams | {"model": "cnn"}]])).startswith(
        "kernel: cnn: stacked, cnn: streams"
    )
    assert "a: 2 samples; " in in_words(summary([[part]], 1.0))
    said = in_words(summary([[here], [there]], 7200.0))
    assert "2 runs, 2.0 h in all" in said and "**Mixed**" in said
    assert "not recorded" in in_words({})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_finished_run_is_shown_and_stays_as_it_is(
    seeds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, it was written down as computed from a round on that it never had, and lost the time of its end."""
    run(Experiment.of(DIGITS, seeds=seeds), out=tmp_path, quiet=True)
    before = contents(tmp_path)
    assert main(["resume", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == f"covey: {tmp_path} is finished: nothing is left to do, and nothing was changed\n"
    assert "accuracy " in out and f"report      {tmp_path / 'report.html'}" in out
    assert main(["resume", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(before["result.json"])
    assert contents(tmp_path) == before
    (one,) = read_result(RunFolder(tmp_path)).provenance
    assert one["from_round"] == 1 and one["ended"]


def test_of_several_seeds_those_that_are_finished_stay_as_they_are(tmp_path: Path) -> None:
    """Once, `covey resume` began all of them anew."""
    rounds: list[int] = []

    def stop(record: dict[str, Any], state: Any) -> None:
        rounds.append(record["round"])
        if len(rounds) == 3:  # in the second seed
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Experiment.of(DIGITS, seeds=2), out=tmp_path, callbacks=[stop], quiet=True)
    before = contents(tmp_path / "seed-0")
    assert main(["resume", str(tmp_path), "--quiet"]) == 0
    assert contents(tmp_path / "seed-0") == before
    assert [one["from_round"] for one in read_result(RunFolder(tmp_path / "seed-1")).provenance] == [1, 2]
    assert read_result(RunFolder(tmp_path)).seeds["n"] == 2


def test_a_run_that_was_stopped_or_lacks_a_finding_goes_on(tmp_path: Path) -> None:
    def stop(record: dict[str, Any], state: Any) -> None:
        raise StopIteration

    experiment, folder = Experiment.of(DIGITS), RunFolder(tmp_path)
    assert not is_complete(experiment, folder)
    run(experiment, out=tmp_path, callbacks=[stop], quiet=True)
    assert folder.finished and not is_complete(experiment, folder)
    assert main(["resume", str(tmp_path), "--quiet"]) == 0
    assert is_complete(experiment, folder) and read_result(folder).rounds == 2
    assert not is_complete(Experiment.of(DIGITS, attacks=["label_flip"]), folder)
    assert not is_complete(Experiment.of(DIGITS, seeds=2), folder)
    folder.write_result(folder.result_json() | {"rounds": 1, "rounds_to_target": 1})
    assert not is_complete(experiment, folder)
    for target, done in ((0.1, True), (0.999, False)):  # it may be raised, and then there is something to do
        aiming = Experiment.of(DIGITS, training={"rounds": 2, "target": target})
        assert is_complete(aiming, folder) == done
    folder.metrics.rename(folder.metrics.with_suffix(".away"))
    assert not is_complete(Experiment.of(DIGITS, training={"rounds": 1}), folder)
    folder.metrics.with_suffix(".away").rename(folder.metrics)
    for damaged in ('{"a": 1}', "{", '{"rounds": 2}', '{"rounds": 2, "seeds": 5, "attacks": null}'):
        folder.result.write_text(damaged)
        assert not is_complete(experiment, folder)
        assert main(["resume", str(tmp_path), "--quiet"]) == 0  # made anew of its checkpoint
        assert read_result(folder).rounds == 2


def test_a_deployed_run_is_its_coordinators_to_go_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Experiment.of(DIGITS), out=tmp_path, quiet=True)
    (tmp_path / "result.json").unlink()
    (tmp_path / "status.json").write_text("{}")
    assert main(["resume", str(tmp_path)]) == 2
    assert "is a deployed run: its coordinator goes on with it" in capsys.readouterr().err
