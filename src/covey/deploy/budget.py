"""A silo's privacy budget: what it has spent in all runs with its keys, beside the keys, and how much its owner allows.

Everything that a defence books is written down before the answer that it is about leaves, by run and round; what would cost more
than the limit does not leave. The ε is the ledger's over all runs together, of several mechanisms their sum. A round that is
computed anew, since the silo was stopped before its answer was stored, replaces what was booked for it: that answer never left.

Limits: the file lies beside the keys, so another experiment's keys begin another one; who trains on the same samples again copies
`budget.bin` into the new folder. It counts what defences book. Without a defence nothing is booked, and nothing is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from covey.deploy.usage import BesideKeys
from covey.errors import CoveyError
from covey.ledger.pricing import price
from covey.messages import message

NAME = "budget.bin"
LOST = (
    "what this silo has spent is not known without it: bring it back from a copy, or make new keys and count it as lost"
)


class BudgetSpent(CoveyError):
    """A round would cost more than this silo's owner allows."""


@message
@dataclass(frozen=True)
class Account:
    limit: float = 0.0  # ε over all runs; 0: none
    spends: dict[str, dict[int, list[Any]]] = field(default_factory=dict)  # run -> round -> events


class Budget:
    """See the module's docstring. Without a folder (a rehearsal) nothing is kept, and nothing refused."""

    def __init__(self, folder: Path | None, limit: float | None = None) -> None:
        self.path = folder / NAME if folder is not None else None
        self._kept = BesideKeys(self.path, Account(), LOST)
        if limit is not None and not 0 < limit < math.inf:
            raise CoveyError(f"a budget of {limit} was given: expected an ε above 0, or none")
        self.account = self._kept.read()
        if limit is not None and limit != self.account.limit:
            with self._alone():
                self._write(replace(self.account, limit=limit))

    @property
    def epsilon(self) -> float:
        """ε of everything so far; inf where something without a guarantee was released."""
        return total(self.account.spends)

    @property
    def booked(self) -> int:
        """Rounds, of all runs."""
        return sum(map(len, self.account.spends.values()))

    @property
    def in_words(self) -> dict[str, float | None]:
        """For the silo's summary; None: no limit, or nothing is guaranteed."""
        epsilon = self.epsilon
        return {"limit": self.account.limit or None, "spent": epsilon if math.isfinite(epsilon) else None}

    def reread(self) -> Budget:
        """With what stands in the file now: another run's silo may have written there."""
        self.account = self._kept.read()
        return self

    def book(self, run: str, round: int, events: Sequence[Any]) -> None:
        """Before an answer leaves; refused, and not booked, where it would be more than is allowed."""
        if not events or self.path is None:
            return
        with self._alone():
            spends = {**self.account.spends, run: {**self.account.spends.get(run, {}), round: list(events)}}
            limit, epsilon = self.account.limit, total(spends)
            if limit and not epsilon <= limit:
                raise BudgetSpent(
                    f"round {round} would bring this silo's privacy loss to ε = {epsilon:.3g} over {len(spends)} run"
                    f"{'' if len(spends) == 1 else 's'} with these keys, and its budget is {limit:g}: it is spent, and no "
                    "further round is answered; `covey join --budget` sets another one"
                )
            self._write(replace(self.account, spends=spends))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._kept.alone():
            self.account = self._kept.read()
            yield

    def _write(self, account: Account) -> None:
        self.account = account
        self._kept.write(account)


def total(spends: Mapping[str, Mapping[int, Sequence[Any]]]) -> float:
    """ε of all runs together. Mechanisms are added up: nothing else is proved of a mixture of them."""
    events = [event for rounds in spends.values() for events in rounds.values() for event in events]
    priced = price([(number, 0, event) for number, event in enumerate(events)])
    alone = {event.mechanism for event in events}  # else what is stated of several together is counted twice
    losses = [entry["epsilon"] for name, entry in priced.items() if name in alone]
    return math.inf if None in losses else float(sum(losses))
