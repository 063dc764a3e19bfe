"""One thread per test process: the suite runs in parallel, and threads that wait for each other on busy cores crawl."""

import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield found
    found.close()
