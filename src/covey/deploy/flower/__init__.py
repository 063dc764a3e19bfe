"""Flower as covey's post office: everything that touches `flwr` is in this folder.

A SuperLink and SuperNodes (their own processes) carry sealed bytes between parties. The SuperLink listens on loopback only; before
it stands `door.py`, which ends TLS and lets nothing but admitted silos' calls through.

Both of Flower's are started with `--isolation process`, in which Flower leaves the running of app code to whoever asks for it.
We ask, and run *our own installed code*: the bundle that a run needs in Flower's books holds no code, and nothing that arrives
over the wire is ever imported or unpickled. So, unlike with stock Flower, the coordinator does not choose what a silo executes;
and there is no process per message: keys and data stay loaded.

The Runtime API that this takes is not a public one, hence the exact version in pyproject and the tests in `tests/deploy/flower`,
which run all of it.
"""

from covey.deploy.flower.link import Link
from covey.deploy.flower.node import answer_calls
from covey.deploy.flower.process import Tls, free_port, have_flower

__all__ = ["Link", "Tls", "answer_calls", "free_port", "have_flower"]
