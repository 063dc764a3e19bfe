"""A party's status for a terminal, and in the words that the page takes, too."""

from __future__ import annotations

from collections.abc import Iterator

from covey.report.format import counted, duration, plain, size
from covey.report.text_table import text_table
from covey.results.status import AWAY, COORDINATOR, DAY, FINISHED, ROUND, WORKING, Peer, Status


def status_lines(status: Status, now: float) -> list[str]:
    return [line.replace("\u00a0", " ") for line in _lines(status, now)]


def headline(status: Status, now: float) -> str:
    """One line: what it is, how far it is."""
    name = f"{status.party}, {status.what}" if status.what else status.party
    return f"{name}: {progress(status, now)}"


def progress(status: Status, now: float) -> str:
    of = f" of {status.rounds}" if status.rounds else ""
    if status.is_silent(now):
        return f"silent since round {status.round}{of}"
    if status.phase == FINISHED:
        return f"finished, {counted(status.done, 'round')}"
    if status.phase == ROUND:
        since = f", for {duration(max(0.0, now - status.since))}" if status.since else ""
        said = f", {status.words}" if status.words else ""
        return f"round {status.round}{of}{said}{since}{staleness(status)}"
    return f"{status.words or status.phase}{f', after round {status.done}{of}' if status.done else ''}"


def staleness(status: Status) -> str:
    """Of asynchronous rounds: how old the last replies were."""
    if status.bound is None or not status.done:
        return ""
    thrown = f", {status.discarded} thrown away" if status.discarded else ""
    return f"; last replies {status.staleness:.1f} rounds old, {status.stalest} at most (bound {status.bound}){thrown}"


def state(peer: Peer, late: dict[str, float], now: float, behind: int | None = None) -> str:
    """As a cell: `late, 12 s`; where rounds are asynchronous `working, 12 s, 3 behind`."""
    rounds = f", {behind} behind" if behind else ""
    if peer.name in late:
        return f"late, {duration(late[peer.name])}{rounds}"
    if peer.state in (AWAY, WORKING) and peer.since:
        return f"{peer.state}, {duration(max(0.0, now - peer.since))}{rounds}"
    return peer.state


def privacy(status: Status) -> list[str]:
    said = [
        f"{one.mechanism.replace('_', ' ')}: "
        + (f"ε = {plain(one.epsilon)}" if one.epsilon is not None else "nothing is guaranteed")
        + (f" at δ = {plain(one.delta)}" if one.epsilon is not None and one.delta else "")
        + (f", per {one.unit}" if one.unit else "")
        for one in status.privacy
    ]
    if status.budget is not None:
        spent = "more than any ε" if status.spent is None else f"ε = {plain(status.spent)}"
        said.append(f"budget: {spent} of {plain(status.budget)} spent, over all runs with these keys")
    return said


def expiry(status: Status, now: float) -> list[str]:
    return [
        f"{name} {'ends in' if when > now else 'ENDED'} {abs(when - now) / DAY:,.0f} days{'' if when > now else ' ago'}"
        for name, when in sorted(status.expires.items(), key=lambda item: item[1])
    ]


def _lines(status: Status, now: float) -> Iterator[str]:
    yield headline(status, now)
    for trouble in status.troubles(now):
        yield f"! {trouble}"
    late = status.late(now)
    rows = [
        [
            peer.name,
            state(peer, late, now, status.behind(peer)),
            str(peer.answered),
            str(peer.missed),
            str(peer.refused),
            duration(peer.seconds) if peer.seconds else "",
            size(peer.up),
            size(peer.down),
        ]
        for peer in status.peers
    ]
    if rows:
        yield ""
        who = "silo" if status.kind == COORDINATOR else "with"
        head = [who, "state", "answered", "missed", "refused", "last took", "up", "down"]
        yield from text_table([head, *rows], indent="  ", right=range(2, 8))
    for title, said in (
        ("refusals", [f"round {r.round}, {r.name}: {r.why}" for r in status.refusals[:5]]),
        ("privacy", privacy(status)),
        ("certificates", expiry(status, now)),
    ):
        if said:
            yield ""
            yield title
            yield from (f"  {words}" for words in said)
