"""Half a minute of `make chaos`: troubles at random, and the models of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


@pytest.mark.slow
def test_a_short_storm(tmp_path: Path) -> None:
    from chaos.storm import storm

    report = storm(tmp_path, minutes=0.5, seed=7, rounds=30, longest=6.0)
    print(report)
    assert report.equal
