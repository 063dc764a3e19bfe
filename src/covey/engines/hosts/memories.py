"""What a host's clients remember from round to round.

What a round changes is staged until the round is whole: one that is cut short leaves no trace. What clients remember that ran as
one lies in sheets, one for each set of clients that went together, and is newer than what stands under their own numbers; for a set
that has no sheet, or a client alone, those that it is in are spread again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Client
from covey.engines.cohort import Apart, Sheet
from covey.engines.spill import Spill
from covey.learn.kernels.vectors.pending import kept, settled
from covey.learn.rowwise import owned
from covey.learn.schedule.waves import stacked
from covey.messages import to_device

Memory = dict[str, Any]


class Memories:
    """`spill`: where those are kept that are too many."""

    def __init__(self, spill: Spill, device: torch.device) -> None:
        self.spill, self._device = spill, device
        self.whole: dict[int, Memory] = {}  # as of the last round that is known to be whole
        self.staged: dict[int, Memory] = {}  # that the round under way has changed
        self._round = 0  # the one under way
        self._sheets: dict[bytes, Sheet] = {}  # by clients
        self._staged_sheets: dict[bytes, Sheet] = {}

    def begin(self, round: int) -> bool:
        """Whether a round begins with this one: then the one before is whole."""
        if round == self._round:
            return False
        self.settle(self._round)
        self._round = round
        return True

    def settle(self, done: int) -> None:
        """Round `done` is whole."""
        if self._round <= done:
            self.whole |= self.staged
            self._sheets |= self._staged_sheets
            self.staged, self._staged_sheets = {}, {}
            self.spill.rest()

    def snapshot(self, done: int) -> dict[int, Memory]:
        """As they were after round `done`; what a later, unfinished round changed is not in them."""
        self.settle(done)
        in_rows = {i: memory for sheet in self._sheets.values() for i, memory in sheet.memories()}
        return self.whole | in_rows if in_rows else self.whole

    def restore(self, memories: Mapping[int, Memory]) -> None:
        """Those that a checkpoint, or another process, had; they may come in parts."""
        self.whole |= {i: self.spill.put(i, memory) for i, memory in memories.items()}
        self.staged, self._sheets, self._staged_sheets = {}, {}, {}

    def take_back(self) -> None:
        """The round under way begins again."""
        self.staged, self._staged_sheets = {}, {}

    def changed(self, clients: Sequence[int]) -> dict[int, Memory]:
        """Those of these clients that the round under way has changed."""
        return {i: self.staged[i] for i in clients if i in self.staged}

    def of(self, client: int) -> Memory:
        """What it remembers, where its machine computes: the spill is not there."""
        memory = dict(self.staged.get(client) or self.whole.get(client) or ())
        if memory and self.spill.mapped and self._device.type != "cpu":
            return dict(to_device(memory, self._device.type))
        return memory

    def of_rows(self, clients: NDArray[np.int64]) -> dict[str, Tensor]:
        """What clients that run as one remember, [n, d] each; Apart where they do not remember the same kinds of vectors."""
        at = clients.tobytes()
        sheet = self._staged_sheets.get(at) or self._sheets.get(at)
        if sheet is not None:
            return {name: settled(column) for name, column in sheet.columns.items()}
        self.spread(clients)
        memories = [self.of(i) for i in clients.tolist()]
        names = memories[0].keys()
        if any(m.keys() != names or not all(isinstance(v, Tensor) for v in m.values()) for m in memories):
            raise Apart
        n = len(clients)
        return {name: stacked([m[name] for m in memories], self._device).expand(n, -1) for name in names}

    def stage(self, clients: Sequence[Client]) -> None:
        """What these remember after their turns."""
        owned([me.memory for me in clients if me.memory])
        for me in clients:
            if me.memory:
                self.staged[me.id] = self.spill.put(me.id, me.memory)

    def stage_rows(self, clients: NDArray[np.int64], columns: Mapping[str, Tensor]) -> None:
        """The same of clients that ran as one."""
        sheet = Sheet(clients, {name: kept(rows, len(clients)) for name, rows in columns.items()})
        at = clients.tobytes()
        others = self._sheets | self._staged_sheets  # the one before of the same clients goes when the round is whole
        held = sheet.nbytes + sum(one.nbytes for of, one in others.items() if of != at)
        if held > self.spill.limit:
            self.spread(clients)  # else the sheet before, of which this is more, would be taken for the newer one
            self.staged |= self._laid_by(sheet)
        else:
            self._staged_sheets[at] = sheet

    def spread(self, clients: Sequence[int] | NDArray[np.int64]) -> None:
        """What these clients remember is where each can find its own, and that of those who shared a sheet with one of them."""
        for sheets, memories in ((self._sheets, self.whole), (self._staged_sheets, self.staged)):
            for at, sheet in list(sheets.items()):
                if np.isin(sheet.ids, clients).any():
                    memories |= self._laid_by(sheet)
                    del sheets[at]

    def _laid_by(self, sheet: Sheet) -> dict[int, Memory]:
        """Each client's own, in memory of its own."""
        memories = dict(sheet.memories())
        owned(list(memories.values()))
        return {i: self.spill.put(i, memory) for i, memory in memories.items()}
