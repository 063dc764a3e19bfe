"""What an attack ends with: a score beside all that it must be read against, and the one verdict on it.

Terminal, report, audit and loggers show this object; none of them judges a score by a rule of its own. Four verdicts:

    broken         the score is within a twentieth of perfect, and its whole interval beyond chance and every control
    leaks          its whole interval lies beyond chance and every control
    no leak seen   it does not; this is no proof of safety
    not measured   there is nothing to compare with, no interval, or one from chance to within a twentieth of perfect: the attack
                   saw too little; or guessing is as good as perfect, so that no observation could show anything
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from covey.files import number
from covey.messages import message

BROKEN, LEAKS, NOTHING_SEEN, NOT_MEASURED = "broken", "leaks", "no leak seen", "not measured"
VERDICTS = (BROKEN, LEAKS, NOTHING_SEEN, NOT_MEASURED)  # the worst first


@dataclass(frozen=True)
class Scale:
    """How a score is to be read: from what guessing and the controls reach to what is perfect, upwards or downwards."""

    chance: float | None
    controls: tuple[float, ...] = ()
    perfect: float = 1.0

    @property
    def upwards(self) -> bool:
        """Whether a higher score is the worse leak."""
        return self.chance is None or self.perfect >= self.chance

    @property
    def bar(self) -> float | None:
        """What the best attacker scores that ignores the observation; None where nobody said, or could."""
        known = (*(() if self.chance is None else (self.chance,)), *self.controls)
        if any(math.isnan(one) for one in known):  # it was to be compared with something that nobody could measure
            return None
        return (max if self.upwards else min)(known, default=None)

    def beats(self, score: float, other: float) -> bool:
        return score > other if self.upwards else score < other

    def beyond(self, low: float, high: float) -> bool:
        """Whether a whole interval lies on the leaking side of the bar."""
        return self.bar is not None and self.beats(low if self.upwards else high, self.bar)

    def everything(self, low: float, high: float) -> bool:
        """Whether an interval spans all there is: from nothing, or guessing where less is worse, to perfect."""
        if self.upwards:
            return low <= 0 and high >= self.perfect
        return low <= self.perfect and self.chance is not None and high >= self.chance

    def broken(self, value: float) -> bool:
        """Within a twentieth of perfect: 0.95 of a share, a twentieth of the error of guessing."""
        room = 0.05 * max(abs(self.perfect), abs(self.chance or 0.0))
        return value >= self.perfect - room if self.upwards else value <= self.perfect + room

    def excess(self, value: float) -> float:
        """How far beyond the bar, as a share of the way to perfect."""
        bar = self.bar or 0.0
        way = self.perfect - bar
        return (value - bar) / (way if abs(way) > 1e-9 else 1e-9)


@message
@dataclass(frozen=True)
class Finding:
    """A score beside what it must be compared with. A score that its controls also reach is not a leak."""

    attack: str
    vantage: str
    metric: str
    value: float
    chance: float | None
    low: float | None  # None, like chance: an older result, or another program's, does not say
    high: float | None
    controls: dict[str, float] = field(default_factory=dict)
    used: str = ""  # what of its view the attack used, in words
    details: dict[str, Any] = field(default_factory=dict)
    perfect: float = 1.0  # the score of who knows everything; 0 for an error, where less is worse
    means: str = ""  # how the score is to be read, in words
    variants: list[Finding] = field(default_factory=list)  # the same by other attackers, scored beside it
    note: str = ""  # what a reader must know of the score, and no verdict depends on: a whole sentence or two

    @property
    def scale(self) -> Scale:
        return Scale(self.chance, tuple(self.controls.values()), self.perfect)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def bar(self) -> float | None:
        """What the best attacker scores that ignores the observation."""
        return self.scale.bar

    @property
    def excess(self) -> float:
        """How far beyond that bar, as a share of the way to a perfect score."""
        return self.scale.excess(self.value) if math.isfinite(self.value) else -math.inf

    @property
    def strongest(self) -> Finding:
        """Itself, or the variant that shows a worse leak, with the others beside it: what is told of an attack in one line."""
        worst = max(self.variants, key=lambda one: (_severity(one), one.excess), default=self)
        if _severity(worst) <= _severity(self):
            return self
        others = [replace(self, variants=[]), *(one for one in self.variants if one is not worst)]
        return replace(worst, variants=others, means=worst.means or self.means)

    @property
    def is_share(self) -> bool:
        """Whether all its numbers lie from 0 to 1 and read as percentages."""
        numbers = (self.value, self.chance, self.low, self.high, *self.controls.values())
        return all(0 <= one <= 1 for one in numbers if one is not None)

    @property
    def best_control(self) -> tuple[str, float] | None:
        """(name, score) of the best attacker that ignores the observation, where there is one beside mere chance."""
        best = max if self.scale.upwards else min
        return best(self.controls.items(), key=lambda control: control[1], default=None)

    @property
    def open_end(self) -> float | None:
        """How bad a leak the interval leaves open; None where it leaves none."""
        end = self.high if self.scale.upwards else self.low
        return end if end is not None and self.scale.beyond(end, end) else None

    @property
    def blind(self) -> bool:
        """Whether the interval spans all there is: the attack saw too little to say anything."""
        undefined = not math.isfinite(self.value) or any(map(math.isnan, self.interval or ()))
        return undefined or (self.interval is not None and self.scale.everything(*self.interval))

    @property
    def no_room(self) -> bool:
        """Whether who ignores the observation is as good as perfect: no score could show a leak, nor that there is none."""
        return self.bar is not None and self.scale.broken(self.bar)

    @property
    def measured(self) -> bool:
        """Whether it is a measurement at all, be it one of many that only together say something."""
        return not (self.bar is None or self.interval is None or self.blind or self.no_room)

    @property
    def undecided(self) -> bool:
        """Whether the interval leaves everything open that matters, from chance to broken: too few clients or samples."""
        if self.interval is None or self.chance is None:
            return False
        near, far = self.interval if self.scale.upwards else self.interval[::-1]
        return not self.scale.beats(near, self.chance) and self.scale.broken(far)

    @property
    def verdict(self) -> str:
        """What the interval says against the best attacker that ignores the observation."""
        if self.interval is None or not self.measured or self.undecided:
            return NOT_MEASURED
        if not self.scale.beyond(*self.interval):
            return NOTHING_SEEN
        return BROKEN if self.scale.broken(self.value) else LEAKS

    @property
    def why(self) -> str:
        """The reason of the verdict, in words."""
        scale, side = self.scale, "above" if self.scale.upwards else "below"
        if scale.bar is None:
            return "nothing to compare with"
        if self.blind:
            return "it saw too little to tell"
        if self.no_room:
            return "guessing alone is as good as perfect, so nothing can be shown"
        if self.undecided:
            return "it saw too little to tell chance from knowing all"
        if self.interval is None:
            reached = scale.beats(self.value, scale.bar)
            return f"{side} chance and controls, but without an interval" if reached else f"not {side} chance"
        if scale.beyond(*self.interval):
            return f"{side} chance and controls"
        if Scale(self.chance, (), self.perfect).beyond(*self.interval) and self.best_control is not None:
            return f"its control “{self.best_control[0].replace('_', ' ')}” reaches as much"
        return f"chance lies in or {side} the interval"

    def json(self) -> dict[str, Any]:
        """As result.json has it under the attack's name; the verdict is written for readers and never read back."""
        content = asdict(self) | {"verdict": self.verdict}
        content["variants"] = [{"attack": variant.attack, **variant.json()} for variant in self.variants]
        del content["attack"]
        return content

    @classmethod
    def of(cls, name: str, entry: Any) -> Finding | None:
        """Back from `json`, with patience for what older versions did not write; None where there is no score to read."""
        content = _mapping(entry)
        value, perfect = number(content.get("value")), number(content.get("perfect"))
        if value is None:
            return None
        listed = content.get("variants")
        variants = [
            cls.of(str(_mapping(one).get("attack")), one) for one in (listed if isinstance(listed, list) else ())
        ]
        controls = {str(k): number(v) for k, v in _mapping(content.get("controls")).items()}
        return cls(
            attack=name,
            vantage=_text(content.get("vantage")),
            metric=_text(content.get("metric")) or "score",
            value=value,
            chance=number(content.get("chance")),
            low=number(content.get("low")),
            high=number(content.get("high")),
            controls={k: v for k, v in controls.items() if v is not None},
            used=_text(content.get("used")),
            details=dict(_mapping(content.get("details"))),
            perfect=1.0 if perfect is None else perfect,
            means=_text(content.get("means")),
            variants=[variant for variant in variants if variant is not None],
            note=_text(content.get("note")),
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return str(value) if value else ""


def _severity(finding: Finding) -> int:
    return {BROKEN: 2, LEAKS: 1}.get(finding.verdict, 0)
