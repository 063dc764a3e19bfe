"""Flower as covey's post office: everything that touches `flwr` is in this folder.

A SuperLink (its own process, at the coordinator's) keeps sealed bytes for nodes, which every other party's process is by itself,
with Flower's own client (`fleet.py`, `node.py`). The SuperLink listens on loopback only; before it stands `door.py`, which ends
TLS and lets nothing but admitted silos' calls through.

It is started with `--isolation process`, in which Flower leaves the running of app code to whoever asks for it. We ask, and run
*our own installed code*: the bundle that a run needs in Flower's books holds no code, and nothing that arrives over the wire is
ever imported or unpickled. So, unlike with stock Flower, the coordinator does not choose what a silo executes; and there is no
process per message: keys and data stay loaded.

The Runtime and Fleet APIs that this takes are not public ones, hence the exact version in pyproject and the tests in
`tests/deploy/flower`, which run all of it.
"""

from covey.deploy.flower.clock import Clock
from covey.deploy.flower.link import Link
from covey.deploy.flower.node import answer_calls
from covey.deploy.flower.process import Tls, free_port, have_flower

__all__ = ["Clock", "Link", "Tls", "answer_calls", "free_port", "have_flower"]
