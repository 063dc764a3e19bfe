"""Every target for a moment: the corpus, then mutations of it under a fixed seed, which finds what broke since it was last clean.

`make fuzz` is the same for an hour, with other seeds, and is where new faults are looked for. `COVEY_FUZZ_SECONDS` says for how
much CPU all targets together are mutated.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from covey.errors import CoveyError
from fuzz.engine import Choices, Fault, Target, drive, forget_peak, judge
from fuzz.readers import drop, scratch
from fuzz.targets import TARGETS

SECONDS = float(os.environ.get("COVEY_FUZZ_SECONDS", "2"))  # and twice as much for what the parties' targets prepare
LEAST = 20  # inputs of a target, however slow the machine is


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_refusals(name: str) -> None:
    target = TARGETS[name]
    share = SECONDS / sum(one.weight for one in TARGETS.values())
    folder = scratch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt = target.prepare(folder)
            forget_peak()
            count = drive(target, attempt, share * target.weight, seed=1, least=LEAST)
    finally:
        drop(folder)
    assert not count.faults, "\n".join(count.faults.values())
    assert count.inputs >= LEAST, count


# ---------------------------------------------------------------- the engine itself


def fails(data: bytes) -> None:
    if data == b"tail":
        raise ZeroDivisionError
    if data == b"slow":
        while True:
            pass
    if data == b"large":
        bytearray(400 << 20)[::4096] = b"\1" * 102400
    raise CoveyError("refused")


def test_what_is_no_refusal_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.engine.SECONDS", 0.02)
    assert judge(fails, b"")[0]
    forget_peak()
    for data, words in ((b"tail", "ZeroDivisionError"), (b"slow", "CPU"), (b"large", "MB more|s of CPU")):
        with pytest.raises(Fault, match=words):
            judge(fails, data)


def test_a_fault_is_kept_once_with_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = Target("breaks", lambda folder: fails, lambda: [b"tail", b"tail"])
    count = drive(target, fails, 0, seed=0, most=20)
    (line,) = count.faults.values()
    assert count.inputs == 20 and (tmp_path / line.partition(":")[0]).read_bytes() == b"tail"


def test_choices_end_in_zeros() -> None:
    choices = Choices(b"\x05\x01\0\0\0")
    assert [choices.below(3), choices.below(1000), choices.below(9)] == [2, 1, 0]
