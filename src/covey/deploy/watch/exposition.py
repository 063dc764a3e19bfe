"""A party's status as Prometheus reads it: text format 0.0.4, one family after another, gauges and counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from covey.results.status import ANSWERED, AWAY, FINISHED, ROUND, WORKING, Status

KIND = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def exposition(status: Status, now: float) -> str:
    return "".join(_lines(status, now))


def _lines(status: Status, now: float) -> Iterator[str]:
    party = {"party": status.party, "kind": status.kind}
    late = status.late(now)
    yield from _family("covey_up", "gauge", "1 while this party runs.", [({**party, "version": status.version}, 1)])
    yield from _family(
        "covey_healthy", "gauge", "1 where nothing wants a person.", [({}, float(not status.troubles(now)))]
    )
    yield from _family(
        "covey_alert", "gauge", "1 where rounds fail again and again.", [({}, float(bool(status.alert)))]
    )
    yield from _family(
        "covey_failures", "gauge", "Rounds, or tries of one, that failed in a row.", [({}, status.failures)]
    )
    yield from _family("covey_round", "gauge", "The round under way, or the last one.", [({}, status.round)])
    yield from _family("covey_rounds", "gauge", "Rounds of the run.", [({}, status.rounds)])
    yield from _family("covey_rounds_done", "gauge", "Finished rounds.", [({}, status.done)])
    yield from _family("covey_finished", "gauge", "1 after the last round.", [({}, float(status.phase == FINISHED))])
    yield from _family("covey_round_seconds", "gauge", "Of the last finished round.", [({}, status.seconds)])
    waiting = now - status.since if status.phase == ROUND and status.since else 0.0
    yield from _family("covey_round_age_seconds", "gauge", "Of the round under way.", [({}, waiting)])
    peers = [({"peer": peer.name}, peer) for peer in status.peers]
    families = (
        ("covey_peer_there", "gauge", "1 where it is connected.", lambda p: p.state != AWAY),
        ("covey_peer_working", "gauge", "1 where its answer is awaited.", lambda p: p.state == WORKING),
        ("covey_peer_answered", "gauge", "1 where it has answered the round under way.", lambda p: p.state == ANSWERED),
        ("covey_peer_late", "gauge", "1 where it keeps the round waiting.", lambda p: p.name in late),
        ("covey_peer_answers_total", "counter", "Rounds that it answered.", lambda p: p.answered),
        ("covey_peer_missed_total", "counter", "Rounds that went on without it.", lambda p: p.missed),
        ("covey_peer_refusals_total", "counter", "Letters that were refused.", lambda p: p.refused),
        ("covey_peer_seconds", "gauge", "Of its last answer.", lambda p: p.seconds),
        ("covey_peer_up_bytes_total", "counter", "From silo to coordinator.", lambda p: p.up),
        ("covey_peer_down_bytes_total", "counter", "From coordinator to silo.", lambda p: p.down),
    )
    if status.bound is not None:
        asynchronous = (
            ("covey_staleness", "gauge", "Of the last round's replies, in rounds, the mean.", status.staleness),
            ("covey_stalest", "gauge", "Of the last round's replies, in rounds, the most.", status.stalest),
            ("covey_max_staleness", "gauge", "Rounds after which a reply is thrown away.", status.bound),
            ("covey_discarded_total", "counter", "Replies that were too old.", status.discarded),
        )
        for name, kind, about, figure in asynchronous:
            yield from _family(name, kind, about, [({}, figure)])
        behind: list[Sample] = [({"peer": peer.name}, float(status.behind(peer) or 0)) for peer in status.peers]
        yield from _family("covey_peer_behind", "gauge", "Rounds since the models that it is at work on.", behind)
    for name, kind, about, value in families:
        yield from _family(name, kind, about, [(labels, float(value(peer))) for labels, peer in peers])
    spent = [({"mechanism": s.mechanism, "unit": s.unit}, s.epsilon) for s in status.privacy]
    yield from _family(
        "covey_epsilon",
        "gauge",
        "Privacy loss so far, by mechanism; +Inf: nothing is guaranteed.",
        [(labels, float("inf") if epsilon is None else epsilon) for labels, epsilon in spent],
    )
    if status.budget is not None:
        yield from _family("covey_budget_epsilon", "gauge", "That this silo's owner allows.", [({}, status.budget)])
        given = float("inf") if status.spent is None else status.spent
        yield from _family("covey_budget_spent_epsilon", "gauge", "Over all runs with these keys.", [({}, given)])
    yield from _family(
        "covey_certificate_expires_seconds",
        "gauge",
        "When, in seconds since 1970.",
        [({"certificate": name}, when) for name, when in sorted(status.expires.items())],
    )


def _family(name: str, kind: str, about: str, samples: list[Sample]) -> Iterator[str]:
    if samples:
        yield f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        labelled = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
        yield f"{name}{'{' + labelled + '}' if labelled else ''} {_number(value)}\n"


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return repr(int(value)) if value == int(value) else repr(float(value))
