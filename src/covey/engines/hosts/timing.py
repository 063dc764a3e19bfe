"""How long a host's phases take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Timing:
    """Seconds by phase. A GPU takes the time itself: waiting for it here would keep the host from preparing what comes next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[str, float] = defaultdict(float)
        self._marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []  # phase, begin, end

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        if self._device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()  # type: ignore[no-untyped-call]
            try:
                yield
            finally:
                end.record()  # type: ignore[no-untyped-call]
                self._marks.append((phase, begin, end))
            return
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - started

    def read_marks(self) -> None:
        """Waits for the GPU, and lets go of what it has marked."""
        for phase, begin, end in self._marks:
            end.synchronize()  # type: ignore[no-untyped-call]
            self._seconds[phase] += 1e-3 * begin.elapsed_time(end)  # type: ignore[no-untyped-call]
        self._marks.clear()

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        self.read_marks()
        spent, self._seconds = dict(self._seconds), defaultdict(float)
        return spent
