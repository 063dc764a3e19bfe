"""How the suite runs: one thread per process, long tests first, those that wait beside those that compute."""

import gc
import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other on busy cores crawl
# The workers of pytest share the cores: a run has processes of its own where its test asks for them.
os.environ.setdefault("COVEY_CORES", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job in the background starts with Ctrl-C ignored, and so would every process that a test starts to interrupt it. A
    # handler, other than SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda number, frame: None)

import pytest
import torch
from hypothesis import settings

from support.chromium import Browser

torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # no test pulls a plug: thousands of small files need not wait for the disk
settings.register_profile("covey", deadline=None, max_examples=50)  # a busy machine is no mistake
settings.register_profile("thorough", deadline=None, max_examples=300)  # of `make test-all`
settings.load_profile("covey")

WAITING = 1  # workers beyond the cores: the parties of a deployment often wait for each other
# What takes longest begins first, so that nothing long is left at the end. A worker that begins with a single test is given a
# second file at once, the fourth of these: both files wait for silos that were killed, and share what parties are copied from.
LONG_FIRST = (
    "deploy/flower/test_comings.py",
    "deploy/flower/test_processes.py",
    "docs/test_tutorial.py",
    "deploy/flower/test_kills.py",
    "engines/ray/",
    "deploy/flower/",
    "/test_browser.py",
    "attacks/category/",
    "audit/",
    "deploy/test_session.py",
    "rounds/test_loop.py",
    "learn/test_training.py",
    "data/sources/",
    "attacks/property/",
    "attacks/membership/",
    "docs/",
    "fuzz/",
    "cli/",
    "algorithms/",
    "sweep/",
    "defences/",
)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return len(os.sched_getaffinity(0)) + WAITING if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # xdist would begin with the files that have most tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, part in enumerate(LONG_FIRST) if part in item.nodeid), len(LONG_FIRST)))


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay until the end: what collects garbage need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()
