"""The same targets driven by libFuzzer, led by coverage of covey's own modules: `python -m fuzz TARGET --guided`.

Needs Atheris (`pip install atheris==3.0.0`, Linux only). libFuzzer ends the process it runs in, so each target has its own. What
it finds worth keeping lies in a folder that the next run begins with; `corpus/` in the repository has the part that counts.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.engine import CORPUS, Count, Target, corpus, store


def installed() -> bool:
    return importlib.util.find_spec("atheris") is not None


def drive(target: Target, seconds: float, seed: int, kept: Path) -> Count:
    """A process of its own; its counts are read off what libFuzzer prints at its end."""
    kept.mkdir(parents=True, exist_ok=True)
    for data in corpus(target):
        store("", data, kept)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "fuzz.guided",
        target.name,
        str(kept),
        str(int(seconds)),
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    said = done.stderr + done.stdout
    count = Count(
        target.name, int((re.findall(r"number_of_executed_units: (\d+)", said) or ["0"])[-1]), seconds=seconds
    )
    covered = re.findall(r"cov: (\d+)", said)
    print(
        f"{target.name}: {covered[-1] if covered else '?'} branches of covey's seen, {len(list(kept.iterdir()))} inputs kept"
    )
    if done.returncode:
        count.faults["libFuzzer"] = said[-3000:]
    return count


def main() -> None:
    """In the process of one target: what is instrumented must be imported for the first time here."""
    import atheris

    name, kept, seconds, seed = sys.argv[1:5]
    with atheris.instrument_imports(include=["covey"], exclude=["covey.learn", "covey.models"]):
        from fuzz.engine import judge
        from fuzz.readers import scratch
        from fuzz.targets import TARGETS
    target = TARGETS[name]
    attempt = target.prepare(scratch())
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={target.longest}", "-print_final_stats=1"]
    with tempfile.TemporaryDirectory() as crashes:
        words = [sys.argv[0], kept, *limits, "-timeout=20", "-rss_limit_mb=4096", f"-artifact_prefix={crashes}/"]
        atheris.Setup(words, lambda data: judge(attempt, bytes(data)) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

__all__ = ["CORPUS", "drive", "installed"]
