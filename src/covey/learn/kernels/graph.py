"""CUDA graphs: a training step is captured once and replayed, so that a step costs one launch instead of hundreds.

The captured step reads everything from fixed buffers, and a counter on the device picks the row of the step: a replay
needs nothing from the host.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from covey.learn.kernels.batched import Accumulate, Tensors, advance
from covey.learn.rule import Rule
from covey.learn.samples import Samples
from covey.learn.schedule.transfer import there
from covey.learn.schedule.waves import Wave

ALIGNED = 32
RECORDINGS = 32  # layouts that are kept
WARM_UP = 3  # steps on a side stream before capturing: libraries allocate their workspaces in the first
FEW, WORTH = 12, 8  # clients of whom half are not worth a capture, and steps of a wave that are


@functools.cache
def stream(device: torch.device, number: int = 0) -> torch.cuda.Stream:
    """The side streams of a device, the same ones in every run of a process: libraries keep a workspace, 32 MB of an H200's memory,
    for every stream that they were ever used on. 0 is for capturing.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Replay:
    """One captured step of c clients, for every wave of the same shape and plan. (On a CPU the same step, not captured.)

    Clients are sorted: those who take the most steps come first. Where many steps are of few clients, the step is captured for the
    first half of them, too, for a quarter, and so on.
    """

    def __init__(self, wave: Wave, samples: Samples, features: int, accumulate: Accumulate, hold: bool) -> None:
        self._model = aligned(wave.start).copy_(wave.start)
        self._wave = replace(wave.copy(), start=self._model)  # so that it does not keep the first wave's memory
        self._counter = torch.zeros(1, dtype=torch.int64, device=wave.start.device)
        self._velocity = aligned(self._model).zero_() if wave.plan.momentum else None
        self._parts = (samples, features, accumulate, hold)
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}  # by how many clients
        self._capture(len(self._model))

    def _capture(self, clients: int) -> None:
        self._graphs[clients] = None
        if self._model.device.type != "cuda":
            return
        graph = torch.cuda.CUDAGraph()
        side = stream(self._model.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._counter.zero_()
                self._step(clients)
        torch.cuda.current_stream().wait_stream(side)
        try:
            with torch.cuda.graph(graph, stream=side):
                self._step(clients)
        except RuntimeError as error:
            warnings.warn(f"no CUDA graph for this step, it runs slower without: {error}", stacklevel=2)
            return
        self._graphs[clients] = graph

    def run(self, wave: Wave) -> Tensor:
        """Trained models [c, D] of a wave that needs no more steps than the one captured."""
        sizes = widths(wave.steps, self._graphs)
        for clients in dict.fromkeys(sizes):
            if clients not in self._graphs:
                self._capture(clients)
        self._wave.overwrite(wave)
        self._model.copy_(wave.start)
        if self._velocity is not None:
            self._velocity.zero_()
        self._counter.zero_()
        for clients in sizes:
            graph = self._graphs[clients]
            if graph is None:
                self._step(clients)
            else:
                graph.replay()
        return self._model.clone()

    def _step(self, clients: int) -> None:
        samples, features, accumulate, hold = self._parts
        step = Tensors.at_counter(self._wave, self._counter).first(clients)
        model, velocity, constant = (
            None if t is None else t[:clients] for t in (self._model, self._velocity, self._wave.constant)
        )
        assert model is not None
        advance(self._wave, step, samples, features, accumulate, model, velocity, constant, hold)
        self._counter.add_(1)


def widths(steps: Sequence[int], known: Container[int] = ()) -> list[int]:
    """For how many clients each step is computed, of clients who take so many steps, the most first: for those who still train, and
    for as few others as captures allow. `known`: captured already.
    """
    if steps[0] == steps[-1]:
        return [len(steps)] * steps[0]
    active = (np.asarray(steps) > np.arange(max(steps))[:, None]).sum(1).tolist()
    sizes = [len(steps)]
    while sizes[-1] > FEW:
        half = -(-sizes[-1] // 2)
        if half not in known and sum(count <= half for count in active) < WORTH:
            break
        sizes.append(half)
    return [next(size for size in reversed(sizes) if size >= count) for count in active]


def _any_rate(wave: Wave) -> Wave:
    """The same training with the learning rate in the samples' weights, and in the constant part of the gradient, so that one
    captured step serves a falling rate: both lie in buffers that every wave overwrites.

    Not with a pull (weight decay, a proximal term), whose share of the model is a number in the step, nor with clipping, which
    reads the weights: there a new rate is a new capture.
    """
    plan, constant = wave.plan, wave.constant
    if plan.clip or Rule.of(plan).pull:
        return wave
    if constant is not None:  # one row for all stays one
        constant = (constant[:1] * plan.lr).expand_as(constant) if constant.stride(0) == 0 else constant * plan.lr
    return replace(wave, plan=replace(plan, lr=1.0), factor=wave.factor * plan.lr, constant=constant)


def aligned(like: Tensor) -> Tensor:
    """Room for [c, D] whose rows begin at multiples of ALIGNED floats: products read several at a time."""
    c, d = like.shape
    return like.new_empty(c, -(-d // ALIGNED) * ALIGNED)[:, :d]


class Replays:
    """The captured steps of a machine; the oldest go when they would hold too much memory."""

    def __init__(self, samples: Samples, features: int, accumulate: Accumulate, budget: float) -> None:
        self._parts = (samples, features, accumulate)
        self._budget = budget
        self._kept: OrderedDict[tuple[object, ...], tuple[Replay, float, int]] = OrderedDict()

    def run(self, wave: Wave, size: float) -> Tensor:
        """Trains a wave whose step needs about `size` bytes."""
        wave = _any_rate(wave)
        hold = Rule.of(wave.plan).moves_alone(wave.constant) and min(wave.steps) < max(wave.steps)
        shape = (*wave.rows.shape[1:], wave.start.shape[1])
        # How often the step is taken, and what its batches are cut by, is not in the step.
        plan = replace(wave.plan, epochs=1, steps=0, batch_size=0, last_batch="keep")
        given = tuple(
            t is None for t in (wave.constant, wave.moves, wave.noise_keys, wave.dropout_keys, wave.head_labels)
        )
        signature = (plan, shape, given, wave.head_classes, wave.head_share, hold, wave.secret)
        kept = self._kept.pop(signature, None)
        if kept is None or kept[2] < len(wave.rows):
            kept = None  # frees its memory before the next is captured
            while self._kept and sum(held for _, held, _ in self._kept.values()) + size > self._budget:
                self._kept.popitem(last=False)
            kept = (Replay(wave, *self._parts, hold), size, len(wave.rows))
        self._kept[signature] = kept
        return kept[0].run(wave)


class Recordings:
    """Functions of tensors, captured when they are asked for the second time and replayed with other numbers from then on: laying
    out batches is some forty launches, testing a model some thirty, losses of a GRU on texts of a hundred words some thousand. What
    a replay gives lies in its own memory, which the next one overwrites.
    """

    def __init__(self, device: torch.device, most: int = RECORDINGS) -> None:
        self._device, self._most = device, most
        self._kept: OrderedDict[tuple[object, ...], Recording | None] = OrderedDict()  # None: asked for once
        self._cannot: set[tuple[object, ...]] = set()  # those that could not be captured, or had to go: once is enough

    def __call__(
        self, key: tuple[object, ...], given: tuple[Tensor, ...], function: Callable[..., tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known.replay(given)
        if self._device.type != "cuda" or key in self._cannot or key not in self._kept:
            self._keep(key, None)
            return function(*(there(one, self._device) for one in given))
        try:
            recording = Recording(given, self._device, function)
        except RuntimeError as error:
            warnings.warn(f"no CUDA graph for {key[0]}, it runs slower without: {error}", stacklevel=2)
            self._cannot.add(key)
            return function(*(there(one, self._device) for one in given))
        self._keep(key, recording)
        return recording.replay(given)

    def _keep(self, key: tuple[object, ...], recording: Recording | None) -> None:
        self._kept[key] = recording
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            gone, recording = self._kept.popitem(last=False)
            if recording is not None:
                self._cannot.add(gone)


class Recording:
    """One captured function; it keeps what it reads beside what it is given alive, too."""

    def __init__(
        self, given: tuple[Tensor, ...], device: torch.device, function: Callable[..., tuple[Tensor, ...]]
    ) -> None:
        self._function = function
        self._given = tuple(one.to(device, copy=True) for one in given)  # those that were given are somebody's
        side = stream(self._given[0].device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function(*self._given)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=side):
            self._results = function(*self._given)

    def replay(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for own, one in zip(self._given, given):
            own.copy_(one if one.is_cuda else one.pin_memory(), non_blocking=True)
        self._graph.replay()
        return self._results
