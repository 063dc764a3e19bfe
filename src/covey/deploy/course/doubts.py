"""Sums that do not open: how a coordinator without a key finds out, and whom it leaves out then.

One silo can spoil a sum under encryption (random residues, a vector beyond the bound), and nobody without the key can tell.
The silos can: what they are sent in the next round does not open. The rule: if more than half of those that answer a round
refuse it, the state that they were sent is bad. The coordinator goes back to the state before it, whose sums had opened, and
those whose replies went into the bad one are suspects. Suspects come back in portions, half of them at a time, into fresh rounds:
replies of the bad round are never added up anew without one of them, since silos, who hold the key, would see the difference. A
portion whose sums open is cleared. One whose sums do not becomes all that is suspected; before the silos' last refusal but one
(`deployment.max_refusals`) it is left out for the rest of the run.

Where no refusal tells of a lasting key (sums that are opened together), nothing limits the search: it ends with one silo.

So one bad silo costs two rounds and, with three refusals, at worst half of the silos; more refusals find it more closely. A
minority that refuses without reason costs itself the round. A majority that does, or that sends bad sums by turns, can keep a
run from going on: it could do so by staying away. Who is left out still gets the models.

Where the server itself sees that a sum is spoilt (under masks), nobody refuses anything and nothing is taken back: suspects are
halved at no cost until one is left, and who is known to have spoilt a round is left out at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from covey.messages import message


@message
@dataclass(frozen=True)
class Doubts:
    """Part of a coordinator's checkpoint."""

    before: Any = None  # the state before the last aggregate; None: there is none to go back to
    senders: list[int] = field(default_factory=list)  # whose replies went into the last state
    suspects: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)  # for the rest of the run
    setbacks: int = 0  # states that turned out bad


def asked(doubts: Doubts, clients: Iterable[int], least: int = 1) -> list[int]:
    """Those of the clients who take part in the next round: the trusted ones, and the next portion of the suspects, so many that
    there are `least` where they can be: with fewer nothing would be averaged, and nobody ever cleared.
    """
    present = [i for i in clients if i not in doubts.left_out]
    suspects = [i for i in present if i in doubts.suspects]
    portion = suspects[: max((len(suspects) + 1) // 2, least - (len(present) - len(suspects)))]
    return [i for i in present if i not in suspects or i in portion]


def after_round(doubts: Doubts, before: Any, senders: Iterable[int]) -> Doubts:
    """The state that was sent has opened, and a new one was made of these senders' replies."""
    opened = set(doubts.senders)
    return replace(
        doubts, before=before, senders=sorted(senders), suspects=[i for i in doubts.suspects if i not in opened]
    )


def after_idle(doubts: Doubts) -> Doubts:
    """The state that was sent has opened, and nothing was made of the replies: nobody who sent them is cleared by that."""
    opened = set(doubts.senders)
    return replace(doubts, suspects=[i for i in doubts.suspects if i not in opened])


def after_judgement(
    doubts: Doubts, suspected: Collection[int], blamed: Collection[int], cleared: Collection[int]
) -> Doubts:
    """What the server has found out by itself about the replies of a round."""
    suspects = [i for i in doubts.suspects if i not in cleared and i not in blamed]
    if suspected and not blamed:
        suspects = [i for i in sorted(suspected) if i in doubts.suspects or not doubts.suspects]
    known = {*blamed, *(suspects if suspected and len(suspects) == 1 else ())}
    left = [i for i in suspects if i not in known]
    return replace(doubts, suspects=left, left_out=sorted({*doubts.left_out, *known}))


def after_setback(doubts: Doubts, most: int) -> Doubts:
    """The state that was sent is bad; `most` are the refusals after which a silo stops, 0: it does not."""
    among = set(doubts.suspects) or set(doubts.senders)
    suspects, setbacks = [i for i in doubts.senders if i in among], doubts.setbacks + 1
    known = bool(doubts.suspects) and len(suspects) == 1
    if not known and (not most or setbacks < max(1, most - 1)):
        return Doubts(None, [], suspects, doubts.left_out, setbacks)
    return Doubts(None, [], [], sorted({*doubts.left_out, *suspects}), setbacks)
