"""What a fuzz target is, how one input is judged, and the plain driver: mutated corpus, no coverage, no dependency.

A target takes bytes. Either they are what a reader would read, or a sequence of choices from which a target builds its input
(a well-signed letter with something wrong inside): so that both drivers, this one and libFuzzer (`guided.py`), can drive
both kinds. It returns, or raises a CoveyError; whatever else happens is a fault.
"""

from __future__ import annotations

import hashlib
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from covey.errors import CoveyError

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 2.0  # of CPU for one input
MEGABYTES = 256  # by which one input may raise the peak of the process
KEPT = 400  # inputs that the plain driver mutates further
Attempt = Callable[[bytes], object]
Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Target:
    """`prepare` makes what an attempt needs, once per process, and gives the attempt."""

    name: str
    prepare: Callable[[Path], Attempt]  # in a scratch folder
    seeds: Callable[[], list[bytes]] = list
    mutate: Mutate | None = None  # None: bytes are flipped, cut, joined; of choices that is all it takes
    longest: int = 4096  # bytes of an input
    modules: tuple[str, ...] = ()  # whose branches guide libFuzzer
    weight: float = 1.0  # its share of a run's time


class Fault(AssertionError):
    """An input on which a target did something else than to refuse it."""


class TooSlow(BaseException):
    """No Exception, so that no reader can take it for a broken file."""


@dataclass
class Count:
    """How a run of one target went."""

    target: str
    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)  # where it happened -> the first input that does it, and how

    def __str__(self) -> str:
        return (
            f"{self.target:<14} {self.inputs:>10,} inputs  {self.refused / max(self.inputs, 1):>5.0%} refused  "
            f"{self.inputs / max(self.seconds, 1e-9):>8,.0f}/s  slowest {1000 * self.slowest:>5.0f} ms  {len(self.faults)} faults"
        )


class Choices:
    """Numbers drawn from an input's bytes, zeros where they end: a change of a byte changes one choice."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, n: int) -> int:
        """From 0 to n − 1."""
        width = 1 if n <= 256 else 4
        taken = self._data[self._at : self._at + width]
        self._at += width
        return int.from_bytes(taken, "little") % n if n > 1 else 0

    def of(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def bytes(self, n: int) -> bytes:
        taken = self._data[self._at : self._at + n]
        self._at += n
        return taken

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]


def judge(attempt: Attempt, data: bytes) -> tuple[bool, float]:
    """(whether it was refused, CPU seconds); a Fault with the reason where it was neither taken nor refused in good time."""
    before, began = _peak(), time.process_time()
    refused = False
    try:
        with _at_most(5 * SECONDS):
            attempt(data)
    except CoveyError as e:
        refused = True
        if len(str(e)) > 4000:
            raise Fault(f"a refusal of {len(str(e))} letters") from e
    except TooSlow as e:
        raise Fault(f"more than {5 * SECONDS:.0f} s of CPU") from e
    except Fault:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:
        raise Fault("".join(traceback.format_exception(e)[-5:])) from e
    took, grown = time.process_time() - began, (_peak() - before) / 1024
    if took > SECONDS:
        raise Fault(f"{took:.1f} s of CPU for {len(data)} bytes")
    if grown > MEGABYTES:
        raise Fault(f"{grown:.0f} MB more memory for {len(data)} bytes")
    return refused, took


def drive(
    target: Target,
    attempt: Attempt,
    seconds: float,
    seed: int,
    most: int = 0,
    least: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Count:
    """The plain driver: the corpus as it is, then mutations of it, for so many CPU seconds or inputs; `least` inputs always."""
    random, count, began = Random(seed), Count(target.name), time.process_time()
    pool = corpus(target)
    for number, data in enumerate(_inputs(target, pool, random)):
        past = number >= max(len(pool), least) and (
            (most and number >= most) or (not most and time.process_time() - began > seconds)
        )
        if past or stop():
            break
        count.inputs += 1
        try:
            refused, took = judge(attempt, data)
            count.refused += refused
            count.slowest = max(count.slowest, took)
            if not refused and len(pool) < KEPT and number >= len(pool):
                pool.append(data)  # what is taken goes deeper than what is refused
        except Fault as e:
            if _place(e) not in count.faults:
                count.faults[_place(e)] = f"{store(target.name, data)}: {e}"
    count.seconds = time.process_time() - began
    return count


def _place(fault: Fault) -> str:
    """Where a fault happened: many inputs find the same one."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    files = [line for line in lines if line.startswith("File ")]
    return f"{files[-1] if files else ''} {lines[-1].partition(':')[0] if lines else ''}"


def _inputs(target: Target, pool: list[bytes], random: Random) -> Iterator[bytes]:
    yield from list(pool)
    mutate, seeded = target.mutate or flip, bool(target.seeds())
    while True:
        known = 0.9 if seeded else 0.4  # choices need no seed: fresh ones go as deep
        data = (
            random.choice(pool)
            if pool and random.random() < known
            else random.randbytes(random.randrange(80 if seeded else target.longest))
        )
        for _ in range(1 + (random.random() < 0.5) * random.randrange(6)):
            data = mutate(data, random)
        if random.random() < 0.1 and pool:
            data = join(data, random.choice(pool), random)
        yield data[: target.longest]


def corpus(target: Target) -> list[bytes]:
    """Valid inputs as the target writes them, and the interesting ones that were kept."""
    folder = CORPUS / target.name
    kept = [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []
    return [*target.seeds(), *kept]


def store(name: str, data: bytes, folder: Path | None = None) -> Path:
    """Writes an input down by its digest; faults go to a folder that is not kept in the repository."""
    folder = folder or Path("fuzz-faults") / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


# ---------------------------------------------------------------- plain mutations


def flip(data: bytes, random: Random) -> bytes:
    """One small change: a bit, a byte, a number, a piece taken away, repeated or put in."""
    if not data:
        return random.randbytes(random.randrange(1, 40))
    at, kind = random.randrange(len(data)), random.randrange(9)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + random.randbytes(1) + data[at + 1 :]
    if kind == 2:
        return data[:at]
    if kind == 3:
        return data[:at] + data[at + random.randrange(1, 17) :]
    if kind == 4:
        return data[:at] + random.randbytes(random.randrange(1, 17)) + data[at:]
    if kind == 5:
        end = at + random.randrange(1, 33)
        return data[:end] + data[at:end] * random.choice((1, 1, 1, 2, 60)) + data[end:]
    if kind == 6:
        number = random.choice((0, 1, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
        word = number.to_bytes(8, random.choice(("little", "big")))
        width = random.choice((1, 2, 4, 8))
        return data[:at] + word[:width] + data[at + width :]
    if kind == 7:
        digits = str(
            random.choice((-1, 0, 1, 2**31, 2**63, 10**30, 1e308, -0.5, "NaN", "Infinity", "null", "[]", "{}"))
        )
        return data[:at] + digits.encode() + data[at + random.randrange(3) :]
    other = random.randrange(len(data))
    return data[:at] + data[other : other + random.randrange(1, 17)] + data[at:]


def join(data: bytes, other: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


# ---------------------------------------------------------------- time and memory


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Ends what takes too long from within; CPU time, so that a busy machine is no fault."""

    def end(number: int, frame: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _peak() -> int:
    """Kilobytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> None:
    """Linux only; elsewhere an input counts from the peak so far."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
