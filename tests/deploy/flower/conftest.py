"""Parties as processes, ended with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey import Experiment
from support.processes import Processes


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    made: list[Processes] = []

    def start(experiment: Experiment, silos: int = 3, program: bool = False) -> Processes:
        made.append(Processes(tmp_path, experiment, silos, program))
        return made[-1]

    yield start
    for processes in made:
        processes.close()
