"""How a process is set while a run is under way: one thread, and a collector that leaves what is old alone."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from typing import Any

import torch

# Objects that Python may have frozen itself as it starts: some hundreds from 3.12 on, where torch has some 100,000.
PYTHONS_OWN = 10_000
YOUNG = 10_000  # new objects after which the collector looks for cycles: those of a round with a thousand clients


@contextmanager
def single_threaded() -> Iterator[None]:
    """Parallelism comes from worker processes: threads that wait for each other crawl when the cores are busy (60× seen).

    torch's threads, and BLAS's under numpy (k-means, principal components) where scikit-learn's threadpoolctl is there.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _one_blas_thread():
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def old_objects_left_alone() -> Iterator[None]:
    """Every round makes thousands of small objects, and the collector would look through all of torch's each time.

    What is frozen is never collected, and there is no unfreezing a part: runs within a run (an attack may make some) freeze
    nothing, nor does any where others have done it for objects of theirs.
    """
    global _under_way
    often, freezes = gc.get_threshold(), not _under_way and not _frozen_by_others()
    _under_way += 1
    if freezes:
        gc.freeze()
    gc.set_threshold(max(often[0], YOUNG), *often[1:])
    try:
        yield
    finally:
        _under_way -= 1
        gc.set_threshold(*often)
        if freezes:
            gc.unfreeze()


_under_way = 0  # runs of this process


@cache
def _frozen_by_others() -> bool:
    """Before the first run. Python counts what is frozen one by one, which takes as long as a small run."""
    return gc.get_freeze_count() > PYTHONS_OWN


def _one_blas_thread() -> AbstractContextManager[Any]:
    try:
        limits: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
    except ImportError:  # a bare GPU machine
        return contextlib.nullcontext()
    return limits


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """With threads of their own; looked for again where modules have come in the meantime, and libraries with them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
