"""What a worker freed is there for its next wave."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy
from covey.engines.allocation import keep_freed
if sys.argv[1] == "kept":
    keep_freed()
def wave():
    return [numpy.ones(1_600_000, "f4") for _ in range(4)]  # models, replies, what is sent
wave()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    wave()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_no_wave_pays_for_fresh_pages() -> None:
    faults = {
        how: int(
            subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True).stdout
        )
        for how in ("kept", "given back")
    }
    if faults["given back"] < 100:
        pytest.skip(f"this C library keeps it by itself: {faults}")
    assert faults["kept"] < faults["given back"] / 2, faults
