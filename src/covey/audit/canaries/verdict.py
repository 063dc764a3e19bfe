"""What a test of the ledger ends with: the ε that is claimed beside the ε that was shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

REFUTED, DOUBTED, NOT_REFUTED, NOTHING_CLAIMED = (
    "claim refuted",
    "above the claim",
    "claim not refuted",
    "nothing claimed",
)
VERDICTS = (REFUTED, DOUBTED, NOT_REFUTED, NOTHING_CLAIMED)  # the worst first
SHOWN, CERTAIN = 0.05, 0.001  # what is shown may err once in twenty tests, a refutation once in a thousand


@dataclass(frozen=True)
class LedgerTest:
    """One test of one mechanism. All figures are of the turns that were tested, priced by the ledger's own accountant."""

    mechanism: str
    method: str  # "two worlds" or "one run"
    rounds: int
    claimed: float | None  # ε; None: nothing is guaranteed
    delta: float
    shown: float  # ε at least, with 95 % confidence, whatever the mechanism
    most: float  # the largest ε that a perfect guesser would have shown with as many trials
    trials: int  # runs of two worlds; canaries of one run
    guesses: str  # how well the guesser did, in words
    deployed: bool  # the noise was secret, as in a silo
    as_gaussian: float | None = None  # ε at least, with 95 % confidence, if the noise is Gaussian
    refuted: bool = False  # with 99.9 % confidence, at some δ for which the ledger claims an ε
    refutation: str = ""  # which, in words
    refutable: bool = True  # whether a perfect guesser could have refuted the claim with as many trials

    @property
    def verdict(self) -> str:
        if self.claimed is None:
            return NOTHING_CLAIMED
        if self.refuted:
            return REFUTED
        return DOUBTED if max(self.shown, self.as_gaussian or 0.0) > self.claimed else NOT_REFUTED

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> LedgerTest:
        """Back from `json`."""
        return cls(**{name: value for name, value in content.items() if name in cls.__dataclass_fields__})


def in_words(test: LedgerTest) -> str:
    """One sentence: what is claimed, what was shown, and how much that says."""
    claimed = "no ε" if test.claimed is None else f"ε {_number(test.claimed)}"
    turns = "1 round" if test.rounds == 1 else f"{test.rounds} rounds"
    gaussian = "" if test.as_gaussian is None else f" ({_number(test.as_gaussian)} if the noise is Gaussian)"
    source = "secret noise" if test.deployed else "keyed noise"
    said = (
        f"{claimed} claimed at δ {test.delta:g} for {turns}, shown at least {_number(test.shown)}{gaussian} at 95 %, "
        f"of {_number(test.most)} that {test.method} could show; {test.guesses}; {source}"
    )
    ends = {
        REFUTED: f"THE CLAIM IS REFUTED at 99.9 %: {test.refutation}",
        DOUBTED: "above the claim at 95 %, not at 99.9 %: test again with another seed and more trials",
        NOT_REFUTED: "not refuted, which proves nothing" + _silence(test),
        NOTHING_CLAIMED: "nothing is claimed that could be refuted",
    }
    return f"{said}. {ends[test.verdict][0].upper()}{ends[test.verdict][1:]}."


def _silence(test: LedgerTest) -> str:
    return "" if test.refutable else "; so large a claim no guesser could refute with so many trials"


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"
