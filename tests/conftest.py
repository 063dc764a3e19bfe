"""How the suite runs: one thread per process, long tests first, those that wait beside those that compute."""

import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other on busy cores crawl
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job in the background starts with Ctrl-C ignored, and so would every process that a test starts to interrupt it. A
    # handler, other than SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda number, frame: None)

import pytest
import torch
from hypothesis import settings

from support.chromium import Browser

torch.set_num_threads(1)
settings.register_profile("covey", deadline=None)  # a busy machine is no mistake
settings.load_profile("covey")

WAITING = 3  # workers beyond the cores: the parties of a deployment mostly wait for each other
PARTIES = "deploy/flower/test_processes.py"
LONG_FIRST = (  # what takes longest begins first, so that nothing long is left at the end
    PARTIES,
    "deploy/flower/test_link.py",
    "docs/test_tutorial.py",
    "deploy/flower/",
    "engines/ray/",
    "attacks/property/",
    "learn/test_training.py",
    "rounds/test_loop.py",
    "deploy/test_session.py",
    "/test_browser.py",
    "cli/",
    "data/sources/",
    "attacks/membership/",
    "attacks/category/",
    "audit/",
    "algorithms/",
    "sweep/",
    "defences/",
)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return len(os.sched_getaffinity(0)) + WAITING if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With --dist=loadgroup: a file's tests stay together, for what they share; deployments make two queues of their own."""
    items.sort(key=lambda item: next((n for n, part in enumerate(LONG_FIRST) if part in item.nodeid), len(LONG_FIRST)))
    deployments = 0
    for item in items:
        file = item.nodeid.partition("::")[0]
        if PARTIES in file:
            item.add_marker(pytest.mark.xdist_group(f"{PARTIES} {deployments % 2}"))
            deployments += 1
        elif "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))
        elif not any(item.iter_markers("alone")):
            item.add_marker(pytest.mark.xdist_group(file))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()
