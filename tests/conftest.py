"""One thread per test process: the suite runs in parallel, and threads that wait for each other on busy cores crawl."""

import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

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
