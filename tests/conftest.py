"""How the suite runs: one thread per process, long tests first, those that wait beside those that compute."""

import gc
import importlib.util
import os
import signal
from collections import deque
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other on busy cores crawl
# The workers of pytest share the cores: a run has processes of its own where its test asks for them.
os.environ.setdefault("COVEY_CORES", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job in the background starts with Ctrl-C ignored, and so would every process that a test starts to interrupt it. A
    # handler, other than SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda number, frame: None)

import pytest
from hypothesis import settings

from support import copies
from support.chromium import Browser

gc.disable()  # until all tests are collected: until then nothing is thrown away
os.fsync = lambda descriptor: None  # no test pulls a plug: thousands of small files need not wait for the disk
settings.register_profile("covey", deadline=None, max_examples=50)  # a busy machine is no mistake
settings.register_profile("thorough", deadline=None, max_examples=300)  # of `make test-all`
settings.load_profile("covey")

WAITING = 2  # workers beyond the cores: the parties of a deployment often wait for each other
# Files whose tests share what is expensive to begin run in one worker. The parties of a deployment are copied from one process
# that has read all their code; and while that worker waits for silos that were killed, the others compute.
TOGETHER = {
    "parties": (
        "deploy/flower/test_comings.py",
        "deploy/flower/test_kills.py",
        "deploy/flower/test_asynchronous.py",
        "deploy/flower/test_membership.py",
        "deploy/flower/test_link.py",
        "deploy/flower/test_processes.py",
    ),
    "browser": ("report/test_browser.py", "ui/test_browser.py"),
}
# What takes longest begins first, so that nothing long is left at the end.
LONG_FIRST = (
    *TOGETHER["parties"],
    "docs/test_tutorial.py",
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


# Read by torch, or by covey where it is needed, and by several copies each for itself if not before there are any.
IN_EVERY_COPY = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "dp_accounting.pld.privacy_loss_distribution",
    "jinja2",
    "ot",
    "scipy.cluster.hierarchy",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.ensemble",
    "sklearn.manifold",
    "sklearn.mixture",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    number = (
        "in how many copies of this process tests run: `auto` is one per core and one more; 0 (the default) is itself"
    )
    parser.addoption("--copies", default="0", metavar="N", help=number)


def copies_of(option: str) -> int:
    if not (option == "auto" or option.isdecimal()):
        raise pytest.UsageError(f"--copies is {option!r}: a number, or auto")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + WAITING if option == "auto" else int(option)


def pytest_configure(config: pytest.Config) -> None:
    if copies_of(config.option.copies) and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--copies and -n are two ways to run tests side by side: take one of them")


def pytest_sessionstart(session: pytest.Session) -> None:
    import torch

    torch.set_num_threads(1)  # and no other thread, which a copy would miss


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, part in enumerate(LONG_FIRST) if part in item.nodeid), len(LONG_FIRST)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests and all modules stay until the end: what collects garbage need not look at them again and again."""
    if copies_of(session.config.option.copies) and not session.config.option.collectonly:
        for module in IN_EVERY_COPY:
            if importlib.util.find_spec(module.partition(".")[0]):
                importlib.import_module(module)
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)  # most of what a test makes is gone before it would be looked at


def groups_of(items: list[pytest.Item]) -> list[copies.Group]:
    """A file's tests together, and those of some files in the same group."""
    groups: dict[str, copies.Group] = {}
    for item in items:
        file = item.nodeid.split("::")[0]
        group = next((name for name, files in TOGETHER.items() if file.endswith(files)), file)
        groups.setdefault(group, deque()).append(item)
    return list(groups.values())


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    number = copies_of(option.copies)
    if number < 1 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    copies.run(session, number, groups_of(session.items))
    return True


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()
