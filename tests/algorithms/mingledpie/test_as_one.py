"""Clients that run as one send, remember and are counted as one by one; where sums are sealed, each goes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey import Experiment, run
from covey.crypto.sealing import plain
from covey.engines import start
from covey.engines.hosts.host import Host
from covey.messages import copied, decode, encode, size
from covey.results.folder import RunFolder


def small(**more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": "mingledpie",
        "clients": 20,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 4, "epochs": 1, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1, "device": "cpu", "clients_at_once": 8},
    }
    return Experiment.of(table | more)


def option(**fields: Any) -> dict[str, Any]:
    return {"algorithm": {"name": "mingledpie", **fields}}


def both(monkeypatch: pytest.MonkeyPatch, given: Experiment) -> tuple[Any, Any, list[bool]]:
    """The run with clients one by one, and as one; and of each wave of the second whether it was."""
    apart = run(given, quiet=True)
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    whole, waves = Host.run_as_one, []

    def watched(host: Host, round: int, calls: Any) -> Any:
        outcomes = whole(host, round, calls)
        waves.append(outcomes is not None)
        return outcomes

    monkeypatch.setattr(Host, "run_as_one", watched)
    return apart, run(given, quiet=True), waves


def facts(result: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in result.records]


@pytest.mark.parametrize(
    "changes",
    [
        option(threshold=3, rate=0.3),
        option(remember="never"),
        option(rebuild="steady"),
        option(turns=True),
        option(min_group=2, history=2),
        {"layers": {"personal": 1}},
        {"attacks": ["a1_bayes", "coalition", "isolation"]},
    ],
    ids=["sets", "redrawn", "steady", "turns", "groups", "shared_layers", "attacked"],
)
def test_they_give_the_same_bit_for_bit(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, waves = both(monkeypatch, small(**changes))
    assert len(waves) == 12 and all(waves)
    assert one.state == other.state  # the bytes of the sums
    assert facts(one) == facts(other)
    assert [f.value for f in one.findings] == [f.value for f in other.findings]


@pytest.mark.parametrize(
    "changes", [{}, option(turns=True), {"layers": {"personal": 1}}], ids=["sets", "turns", "shared"]
)
def test_what_stays_in_the_process_is_not_written(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written, write = [], plain._write
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    monkeypatch.setattr(plain, "_write", lambda *given: written.append(given) or write(*given))
    result = run(small(**changes), quiet=True)
    assert not written
    read = decode(encode(result.state))
    assert type(read.sums) is list and len(written) == len(read.sums) == 5 + ("layers" in changes)
    sent = size(result.state)
    assert read == result.state and sent == len(encode(read)) == len(encode(result.state))
    assert result.records[-1]["bytes"]["down"] == sent  # sums and sizes have as many digits in the last rounds


def test_who_looks_on_is_shown_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    result = run(small(), quiet=True)
    assert type(result.state.sums) is plain.PlainSums
    shown = copied(result.state)  # as attacks and clients in an attacker's hands get it
    assert type(shown.sums) is list and shown == decode(encode(result.state))
    assert encode(shown) == encode(result.state)


@pytest.mark.parametrize("rebuild", ["counts", "steady"])
def test_who_remembers_something_else_goes_alone(rebuild: str, monkeypatch: pytest.MonkeyPatch) -> None:
    participation = {"share": 0.5, "dropout": 0.2}
    training = {"rounds": 6, "epochs": 1, "batch_size": 10, "lr": 0.1}
    one, other, waves = both(
        monkeypatch, small(**option(rebuild=rebuild), participation=participation, training=training)
    )
    assert any(waves) and not all(waves)
    assert one.state == other.state and facts(one) == facts(other)


def test_who_seals_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, waves = both(monkeypatch, small(encryption="bfv", training={"rounds": 2, "epochs": 1}, clients=10))
    assert waves and not any(waves)
    assert facts(one) == facts(other)


def test_what_each_remembers_is_stored_and_read_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one up to the third round, one by one from there; sets that were shown stay what they were."""
    whole = run(small(), quiet=True, out=tmp_path / "whole")

    def stop(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 3:
            raise StopIteration

    with monkeypatch.context() as patched:
        patched.setattr(start, "IN_ROWS", ("cpu",))
        run(small(), quiet=True, out=tmp_path / "parts", callbacks=[stop])
    assert facts(whole) == facts(run(small(), quiet=True, out=tmp_path / "parts", resume=True))
    kept = [RunFolder(tmp_path / name).load()[0]["memories"] for name in ("whole", "parts")]
    assert [memory["sets"] for memory in kept[0].values()] == [memory["sets"] for memory in kept[1].values()]
    assert np.all([memory["identity"] == kept[1][i]["identity"] for i, memory in kept[0].items()])
