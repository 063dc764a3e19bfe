"""What a run keeps of its past, beside the server's state and what clients remember, and when that is saved."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covey.experiment.experiment import EngineConfig
from covey.messages import to_device
from covey.results.folder import RunFolder
from covey.results.provenance import Sitting
from covey.rounds.asynchronous import UnderWay
from covey.rounds.record import Spend


@dataclass
class Past:
    """Of the rounds that are whole, and of the one under way."""

    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[int, dict[str, Any]]] = field(default_factory=list)  # of clients, where attacks look on
    spends: list[Spend] = field(default_factory=list)
    sittings: list[Sitting] = field(default_factory=list)  # who computed which rounds
    way: UnderWay = field(default_factory=UnderWay)
    # The round that began last: its number, and how much was spent and who was under way before it.
    _begun: tuple[int, int, UnderWay] = (0, 0, UnderWay())

    @classmethod
    def restored(cls, content: Mapping[str, Any], records: list[dict[str, Any]], device: str) -> Past:
        """As a checkpoint has it."""
        way = to_device(content.get("way", UnderWay()), device)
        return cls(records, content["notes"], content["spends"], content.get("sittings", []), way)

    @property
    def last(self) -> dict[str, Any] | None:
        """The record of the last round that is whole."""
        return self.records[-1] if self.records else None

    def begin(self, round: int) -> None:
        self._begun = (round, len(self.spends), self.way)

    def take_back(self, done: int) -> bool:
        """Whether the round after `done` was cut short. What it spent, and who was under way in it, comes again with it."""
        round, spent, way = self._begun
        if round > done:
            del self.spends[spent:]
            self.way = way
        return round > done


class Checkpoints:
    """`folder`: where the last one lies; None: none are kept. `model`: the network's fingerprint."""

    def __init__(self, folder: RunFolder | None, engine: EngineConfig, model: str, keys: dict[str, Any]) -> None:
        self._folder, self._engine, self._model, self._keys = folder, engine, model, keys
        self._saved = (0, 0.0)  # round and time of the last one

    def begin(self, done: int) -> None:
        """Rounds begin, after those that were done before."""
        self._saved = (done, time.monotonic())

    def lacks(self, done: int) -> bool:
        """Whether what there is after round `done` is not saved."""
        return self._folder is not None and (done > self._saved[0] or not self._folder.begun)

    def is_due(self, done: int) -> bool:
        since, at = self._saved
        often = 0 < self._engine.checkpoint_every <= done - since
        late = time.monotonic() - at >= 60 * self._engine.checkpoint_minutes
        return self.lacks(done) and (often or late)

    def save(self, past: Past, state: Any, done: int, memories: Any, attacks: Any) -> None:
        """`memories`: of clients, `attacks`: theirs; both as they were after round `done`."""
        assert self._folder is not None
        content = {
            "round": done,
            "model": self._model,
            "state": state,
            "memories": memories,
            "attacks": attacks,
            "notes": past.notes,
            "spends": past.spends,
            "sittings": past.sittings,
            "way": past.way,
        }
        self._folder.save(content, self._keys)
        self._saved = (done, time.monotonic())
