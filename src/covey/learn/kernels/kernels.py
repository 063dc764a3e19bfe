"""Which way a machine computes: the choice, and how many clients go side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from covey.errors import CoveyError, nearest
from covey.learn.flat import Network
from covey.learn.kernels.batched import Accumulate, one_step, run
from covey.learn.kernels.factors import Layers, Unknown
from covey.learn.kernels.graph import WARM_UP, Replays, aligned
from covey.learn.kernels.linear import Linear, is_stack
from covey.learn.kernels.loop import Loop, at_once
from covey.learn.kernels.one_start import OneStart, does
from covey.learn.kernels.recurrences.recurrences import kernels_of
from covey.learn.kernels.stacked import Stacked, obstacle
from covey.learn.kernels.streams import Outputs, Streams
from covey.learn.kernels.whole import Whole
from covey.learn.objective import activations
from covey.learn.precision import of_convolutions, of_products
from covey.learn.samples import Samples
from covey.learn.schedule.waves import Wave
from covey.learn.work import Plan
from covey.models import recurrence

NAMES = ("auto", "linear", "loop", "stacked", "streams")
CACHE = 4e6  # bytes of the parameters and activations that share a CPU's cache: four or five FCNNs; flat around there
GPU = 32e9  # bytes of a GPU that one captured step may use; more clients at once gain nothing beyond
_sharing = 1  # processes that train on this GPU: each of them sees all of its memory free before the others take theirs
LARGE = (
    500_000  # parameters from which a convolutional network's clients go on streams, on a GPU (H200: 1.5-1.6x there)
)
# Floats that the layers give for a client's batch from which clients who begin alike go in one pass, on a GPU. Of faces of 62 × 47
# there are 7.8 million, in kernels of 30 to 80 µs that fill little of an H200. With fewer, the pass may gain nothing. An
# estimate, from a profile of a captured step.
HEAVY = 4_000_000
AT_ONCE = 8  # models that are tested side by side


class Points(Protocol):
    """What is computed for one model at a time."""

    def logits(self, model: Tensor, x: Tensor) -> Tensor: ...
    def gradient(self, at: Tensor, rows: Tensor) -> Tensor: ...
    def sample_norms(self, at: Tensor, rows: Tensor) -> Tensor: ...
    def sample_gradients(self, at: Tensor, rows: Tensor, last: int) -> Tensor: ...
    def fisher(self, at: Tensor, rows: Tensor) -> Tensor: ...


class Kernel(Protocol):
    """A way to compute: trains waves, and computes points."""

    name: str

    @property
    def points(self) -> Points: ...
    def train(self, wave: Wave) -> Tensor: ...
    def joins(self, plan: Plan) -> bool: ...


def share_gpu(processes: int) -> None:
    """So many processes, of which this is one, train on the same GPU: its captured steps leave the others their part."""
    global _sharing
    _sharing = processes


def choose(
    name: str, network: Network, samples: Samples, device: torch.device, chunk: int = 0, own_loops: bool = False
) -> Kernel:
    """The kernel of this name; auto: the fastest as measured. `own_loops`: see `Machine`."""
    if name not in NAMES:
        raise CoveyError(f"unknown kernel '{name}'{nearest(name, NAMES)}")
    name = taken(name, network, device)
    recurrence.kernels_of = kernels_of
    loop = Loop(network, samples, device, own_loops)
    if name == "loop":
        return loop
    if name == "linear":
        linear, plain = Linear(network, samples), Linear(network, samples, own_kernels=False)
        parts = (linear, linear.accumulate, sum(linear.sizes), 2, chunk, Whole(linear), plain.accumulate, linear.only)
        return SideBySide(name, network, samples, *parts)
    stacked = Stacked(network, device)
    points = loop
    if name == "stacked" and stacked.joins():
        points = Together(network, samples, device, stacked)
    elif name == "streams" and stacked.has(nn.GroupNorm):
        points = Outputs(network, samples, device)
    accumulate = stacked.accumulate if name == "stacked" else Streams(stacked, device).accumulate
    from_one = OneStart(loop).accumulate if name == "streams" else None
    size = activations(network)
    return SideBySide(name, network, samples, points, accumulate, size, 5, chunk, from_one=from_one)


def taken(name: str, network: Network, device: torch.device) -> str:
    """The kernel that is used where this one is asked for: the loop, where clients cannot be trained side by side."""
    name = automatic(network, device) if name == "auto" else name
    return "loop" if name in ("stacked", "streams") and obstacle(network) else name


def fallback(name: str, network: Network, device: torch.device) -> str:
    """One line for the user where clients train one after another although that is slow; empty: they do not."""
    wanted = automatic(network, device) if name == "auto" else name
    if taken(name, network, device) == wanted:
        return ""
    return (
        f"model '{network.title}' trains its clients one after another (loop kernel), not stacked: {obstacle(network)}"
    )


def automatic(network: Network, device: torch.device) -> str:
    """Linear stacks in closed form; the rest looped on a CPU, and on a GPU stacked, or on streams where they are large."""
    if is_stack(network):
        return "linear"
    if device.type != "cuda":
        return "loop"
    convolutional = any(isinstance(layer, nn.Conv2d) for layer in network.architecture.modules())
    return "streams" if convolutional and network.d >= LARGE else "stacked"


class Together(Loop):
    """The loop kernel's points where layers have kernels of their own for many at once: outputs of several models, and gradients of
    single samples, each of which is as a client with one sample to them. In bf16 they have none.
    """

    def __init__(self, network: Network, samples: Samples, device: torch.device, stacked: Stacked) -> None:
        super().__init__(network, samples, device)
        self._stacked = stacked

    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        return self.logits_of_all(model[None], x)[0]

    def logits_of_all(self, models: Tensor, x: Tensor) -> Tensor:
        """Outputs [k, b, classes] of models [k, d]; a few at a time, since each has activations of its own."""
        if of_convolutions() == "bf16":
            return torch.stack([super(Together, self).logits(model, x) for model in models])
        return torch.cat([self._stacked.logits_of_all(part, x) for part in torch.split(models, AT_ONCE)])

    def _layers(self, at: Tensor, rows: Tensor) -> Iterator[Layers]:
        if of_convolutions() == "bf16":
            return super()._layers(at, rows)
        raise Unknown  # by gradients: the joined layers do not show their factors, and compute these faster

    def _sample_gradients(self, at: Tensor, rows: Tensor, last: int = 0) -> Iterator[Tensor]:
        if last or of_convolutions() == "bf16":
            yield from super()._sample_gradients(at, rows, last)
            return
        for part in torch.split(rows, at_once(len(at), at.device)):
            yield self._stacked.sample_gradients(at, self.samples.inputs(part), self.samples.labels(part))


class SideBySide:
    """Trains chunks of clients at once: eagerly on a CPU, as a replayed CUDA graph on a GPU, or by kernels for whole steps."""

    def __init__(
        self,
        name: str,
        network: Network,
        samples: Samples,
        points: Points,
        accumulate: Accumulate,
        activations: int,  # floats per sample
        copies: int,  # of the parameters that a step holds at its peak
        chunk: int,
        whole: Whole | None = None,
        once: Accumulate | None = None,  # for a few steps that never come again: nothing is compiled for them
        only: Callable[[Tensor], Accumulate | None] | None = None,  # that of some parameters: see `Linear.only`
        from_one: Accumulate | None = None,  # for clients who begin at one and the same model
    ) -> None:
        self.name, self.points, self.whole = name, points, whole
        self._network, self._samples, self._accumulate = network, samples, accumulate
        self._once = accumulate if once is None else once
        self._only, self._from_one = only, from_one
        self._activations, self._copies, self._chunk = activations, copies, chunk
        self._device = samples.x.device
        self._short: set[tuple[int, ...]] = set()  # shapes of waves of few steps that have come once
        self._room = CACHE
        self._alike: Replays | None = None  # steps of clients who begin alike
        if self._device.type == "cuda":
            free, whole_gpu = torch.cuda.mem_get_info(self._device)
            self._room = min(GPU, free / 2, whole_gpu / (2 * _sharing))
            budget = self._room if from_one is None else self._room / 2
            self._replays = Replays(samples, network.features, accumulate, budget)
            if from_one is not None:
                self._alike = Replays(samples, network.features, from_one, budget)

    def train(self, wave: Wave) -> Tensor:
        """Trained models [n, D] in the wave's order."""
        if len(wave.rows) == 0:  # nobody takes a step
            return wave.start.clone(memory_format=torch.contiguous_format)
        wave, accumulate = self._for_what_moves(wave)
        n, each = len(wave.steps), self._bytes(wave)
        fit = self._chunk or max(1, int(self._room / each))
        size = -(-n // -(-n // fit))  # chunks of even size
        if self._device.type == "cuda":
            result = aligned(wave.start)
        else:
            result = wave.start if wave.fresh else wave.start.new_empty(wave.start.shape)
        for low in range(0, n, size):
            part = wave.clients(low, min(low + size, n))
            if self.whole is not None and self.whole.does(part) and self.whole.train(part, result[low : low + size]):
                continue
            if self._from_one is not None and self.joins(part.plan) and is_one(part.start):
                if self._alike is not None and self._is_worth_a_capture(part) and not _asks_for_noise(part):
                    result[low : low + size] = self._alike.run(part, len(part.steps) * each)
                else:
                    one_step(part, self._samples, self._network.features, self._from_one, result[low : low + size])
            elif self._device.type == "cuda" and not self._is_worth_a_capture(part):
                run(part, self._samples, self._network.features, self._once, result[low : low + size])
            elif self._device.type == "cuda" and not _asks_for_noise(wave):
                result[low : low + size] = self._replays.run(part.padded(size), size * each)[: n - low]
            else:
                run(part, self._samples, self._network.features, accumulate, result[low : low + size])
        return result

    def joins(self, plan: Plan) -> bool:
        """Whether clients of this plan are best trained with those who begin at the same model."""
        if self._from_one is None or plan.steps != 1 or of_products() == "bf16":
            return False
        # The bound of clipping hangs on norms, which are of the factors; without them a sample's gradient is as long as the model.
        gains = of_products() == "ieee" if plan.clip else plan.batch_size * self._activations >= HEAVY
        return gains and does(self._network)

    def _for_what_moves(self, wave: Wave) -> tuple[Wave, Accumulate]:
        """Where whole layers stay as they are, on a CPU: the kernel of the others, and a wave without the mask that puts them back.
        A mask changes nothing else in plain steps; the captured steps of a GPU keep it, since the next wave's is written over it.
        """
        plain = wave.secret is None and wave.constant is None and wave.head_labels is None
        plain = plain and not (wave.plan.clip or wave.plan.momentum)
        if self._only is None or wave.moves is None or not plain or self._device.type == "cuda":
            return wave, self._accumulate
        one_for_all = wave.moves.stride(0) == 0 or len(wave.moves) == 1
        only = self._only(wave.moves[0]) if one_for_all else None
        return (wave, self._accumulate) if only is None else (replace(wave, moves=None), only)

    def _is_worth_a_capture(self, wave: Wave) -> bool:
        """It takes longer than a few steps: a wave of so few is computed as it comes, the first time."""
        shape = (*wave.rows.shape, wave.start.shape[1])
        if len(wave.rows) > WARM_UP or shape in self._short:
            return True
        self._short.add(shape)
        return False

    def _bytes(self, wave: Wave) -> float:
        """What one client needs while it trains."""
        plan, slots, d = wave.plan, wave.rows.shape[2], wave.start.shape[1]
        copies = (
            self._copies
            + (plan.momentum > 0)
            + (wave.constant is not None)
            + 2 * (wave.moves is not None)
            + 3 * (plan.noise > 0)
        )
        per_sample = 3 * slots * d if plan.clip and self.name != "linear" else 0
        if self._device.type == "cpu":  # what is reused soon should stay in the cache: not the temporaries
            return 4.0 * (d + slots * self._activations)
        return 4.0 * (copies * d + 3 * slots * self._activations + per_sample)


def _asks_for_noise(wave: Wave) -> bool:
    """Of the operating system, which a graph cannot."""
    return wave.secret is not None and wave.plan.noise > 0


def is_one(rows: Tensor) -> bool:
    """Whether these rows are views of one."""
    return len(rows) == 1 or rows.stride(0) == 0
