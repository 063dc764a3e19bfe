"""What a silo's process is made of."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")

CALLS = """
import sys
import covey.deploy.serve
from covey.deploy.flower.clock import Clock
from covey.deploy.flower.fleet import Away, Fleet
fleet = Fleet("127.0.0.1:1", None, Clock())
try:
    fleet.begin(0)
except Away:
    print(*[name for name in ("fastapi", "pydantic", "starlette", "requests", "numba", "scipy", "sklearn") if name in sys.modules])
"""


@pytest.mark.slow
def test_a_silo_brings_no_web_server_along() -> None:
    """Flower's interceptors would: 20 MB in every silo."""
    spoken = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True).stdout
    assert spoken == "\n"
