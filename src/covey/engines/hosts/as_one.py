"""Answers to what the coroutine of clients asks for that run as one: see `cohort`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from covey.algorithms.contract import Coroutine
from covey.engines.cohort import Alone, Cohort
from covey.engines.hosts.answers import PHASES, Shared
from covey.engines.hosts.losses import LastLosses
from covey.engines.hosts.rows import Rows
from covey.engines.hosts.timing import Timing
from covey.errors import NotFinite
from covey.learn.kernels.vectors.doubts import Doubt
from covey.learn.machine import Machine
from covey.learn.rowwise import on_rows
from covey.learn.schedule.waves import WAVES
from covey.learn.work import Bundle, Compute, Losses, Train, Work
from covey.randomness import Streams


class AnswersAsOne:
    """A vector has a row for each client. The host does not wait for a GPU: what trainings gave is checked later (`check`)."""

    def __init__(self, machine: Machine, rows: Rows, timing: Timing, shared: Shared, losses: LastLosses) -> None:
        self._machine, self._rows, self._timing, self._shared, self._losses = machine, rows, timing, shared, losses
        self._ahead: dict[tuple[bytes, int], Streams] = {}  # by clients and round
        self._doubts: list[Doubt] = []  # of this round's trainings, whose check is put off

    def advance(self, me: Cohort, begin: Callable[..., Coroutine], message: Any) -> Any:
        """Runs their coroutine to its end; returns what it returns."""
        turn, answer = begin(me, message), None
        self._shared.keep_of([message])
        while True:
            try:
                request = turn.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self._answer(me, request, message)

    def _answer(self, me: Cohort, work: Work | list[Work], message: Any) -> Any:
        if isinstance(work, Train):
            return self._train(me, work)
        if isinstance(work, Losses) and work.on is None and work.models.dim() == 2:
            return self._losses_of(me, work.models)
        if isinstance(work, Compute) and work.rowwise:
            return on_rows(work, self._machine.device, partial(self._timing.of, work.phase))
        if isinstance(work, Compute) and work.shared:
            whose = tuple(me.clients[0] if argument is me else argument for argument in work.arguments)
            return self._shared.compute(replace(work, arguments=whose), message)
        if isinstance(work, Compute):
            with self._timing.of(work.phase):
                return me.each(work)
        raise Alone

    def _train(self, me: Cohort, work: Train) -> Tensor:
        if any(one is not None for one in (work.on, work.weights, work.head, work.moves)):
            raise Alone
        rows, sizes = self._rows.joined(me.ids, me.round)
        waits = self._machine.device.type == "cpu"
        ahead = None if waits else partial(self._look_ahead, me, work.purpose)
        bundle = Bundle(work, self._streams(me), rows, sizes, ahead, self._doubts)
        with self._timing.of(PHASES[Train]):
            return self._machine.train_bundle(bundle)

    def _streams(self, me: Cohort) -> Streams:
        known = self._ahead.pop((me.ids.tobytes(), me.round), None)
        return Streams(me.seed, me.round, me.ids, self._machine.draw) if known is None else known

    def _look_ahead(self, me: Cohort, purpose: str) -> None:
        """Keys of the next round, should the same clients train in it: they are asked for while the device computes."""
        if len(self._ahead) >= WAVES:
            self._ahead.clear()
        streams = self._ahead[me.ids.tobytes(), me.round + 1] = Streams(
            me.seed, me.round + 1, me.ids, self._machine.draw
        )
        streams.of(purpose, "order")

    def _losses_of(self, me: Cohort, models: Tensor) -> Tensor:
        who = me.ids.tobytes()
        known = self._losses.of(who, me.round, models)
        if known is not None:
            return known
        with self._timing.of(PHASES[Losses]):
            try:
                losses = self._machine.losses_of_bundle(models, *self._rows.joined(me.ids, me.round))
            except NotFinite as error:
                raise error.by(me.ids[list(error.of)].tolist()) from None
        self._losses.keep(who, me.round, models, losses)
        return losses

    def check(self) -> None:
        """Raises what was wrong with trainings of this round that were not waited for."""
        doubts = list(self._doubts)
        self.forget()
        for doubt in doubts:
            doubt.check()

    def forget(self) -> None:
        """Another round begins: nobody asks any more."""
        self._doubts.clear()

    def sum_up(self) -> None:
        """The replies so far were taken: what nobody has added up is, so that no check keeps it."""
        for doubt in self._doubts:
            doubt.sum_up()
