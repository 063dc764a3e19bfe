"""What an audit says to who does not read matrices: one sentence in plain words, and a privacy card to hand on."""

from __future__ import annotations

from collections.abc import Sequence

from covey.attacks.finding import BROKEN, NOTHING_SEEN
from covey.audit.matrix import GIVEN, LEAKING, SUSPECTED, Audit
from covey.audit.text import title
from covey.leaks import CLIENT, COALITION, DEEDS, EAVESDROPPER, PARTIES, SECOND, SERVER, SERVERS
from covey.report.format import counted, percent, sentence_case

PEOPLE = {
    SERVER: "whoever runs the server",
    SECOND: "whoever runs the second server",
    CLIENT: "any participant",
    COALITION: "the server together with a participant",
    EAVESDROPPER: "whoever reads the line",
    SERVERS: "both servers together",
}


def plain_words(audit: Audit) -> str:
    """The whole audit in a sentence or two, for everybody."""
    if audit.problem:
        return f"In plain words: nothing was audited, because {audit.problem}"
    attacks = len({finding.attack for cell in audit.cells for finding in cell.tried})
    learned: dict[tuple[str, ...], list[str]] = {}  # the questions answered -> by whom
    by_party = {column: _answered(audit, column) for column in PARTIES}
    both = {*by_party[SERVER], *by_party[CLIENT]}
    joined = bool(by_party[SERVER] and by_party[CLIENT]) and {*by_party[COALITION]} == both
    for column, rows in by_party.items():
        if rows and not (joined and column == COALITION):
            learned.setdefault(rows, []).append(PEOPLE[column])
    suspected = [row for row in audit.rows if not audit.leaks(row) and audit.learners(row, SUSPECTED)]
    open_ = [row for row in audit.rows if audit.says(row) and not audit.leaks(row) and row not in suspected]
    rest = f"What {counted(attacks, 'attack')} did not show may still be learned by better ones"
    if not learned and not suspected and not attacks:
        return (
            "In plain words: no attack was run, so nothing is known of what anybody learns: this is no proof of safety."
        )
    if not learned and not suspected:
        return f"In plain words: these attacks did not show that anybody learns anything. {rest}: this is no proof of safety."
    sentences = [f"{_listed(who)} can {_deeds(audit, rows)}" for rows, who in learned.items()]
    sentences += [f"{PEOPLE[COALITION]} can do what both can, and {_more(audit)}"] if joined else []
    unseen = [f"a leak is suspected, and not certain, of {_listed(suspected)}"] if suspected else []
    tried = [row for row in open_ if audit.worst(row).verdict == NOTHING_SEEN]
    unseen += [f"tried, not shown and not excluded: {_listed(tried)}"] if tried else []
    unmeasured = [row for row in open_ if row not in tried]
    unseen += [f"not measured, or no attack known: {_listed(unmeasured)}"] if unmeasured else []
    return f"In plain words: {'. '.join(sentence_case(words) for words in (*sentences, *unseen, rest))}."


def _answered(audit: Audit, column: str) -> tuple[str, ...]:
    return tuple(row for row in audit.rows if audit.cell(row, column).verdict in LEAKING)


def _more(audit: Audit) -> str:
    """What server and client together have broken, and neither of them alone."""

    def holding(column: str, *verdicts: str) -> set[str]:
        return {row for row in audit.rows if audit.cell(row, column).verdict in verdicts}

    alone = holding(SERVER, BROKEN, GIVEN) | holding(CLIENT, BROKEN, GIVEN)
    rows = [row for row in audit.rows if row in holding(COALITION, BROKEN) - alone]
    return f"more surely than either alone {_deeds(audit, rows)}" if rows else "no more was shown"


def _deeds(audit: Audit, rows: Sequence[str]) -> str:
    """Of what is leaked, "learn …"; of the rest, what it is."""
    questions = "; ".join(audit.rows[row] for row in rows if row not in DEEDS)
    deeds = [DEEDS[row] for row in rows if row in DEEDS]
    return "; and can ".join(filter(None, [questions and f"learn {questions}", *deeds]))


def cards(audits: Sequence[Audit], command: str) -> str:
    """One card for each combination of algorithm and protection, as Markdown."""
    commands = command.splitlines() or ["covey.audit.audit(experiment, out)"]
    origin = f"By `{'` and `'.join(commands)}`. Every score is in audit.json."
    return "\n\n".join(["# Privacy card" + "s" * (len(audits) > 1), origin, *(card(audit) for audit in audits)]) + "\n"


def card(audit: Audit) -> str:
    if audit.problem:
        return f"## {title(audit)}\n\nRefused: {audit.problem}"
    facts = [
        f"{audit.clients} clients, {counted(audit.rounds, 'round')}, {counted(audit.seeds, 'seed')}",
        f"Accuracy: {'–' if audit.accuracy is None else percent(audit.accuracy)}, of clients on their own distribution",
        f"Cost: {_bytes(audit.cost.get('up'))} up and {_bytes(audit.cost.get('down'))} down, per client and round",
        f"ε claimed by the ledger: {_claimed(audit)}",
        *([f"ε shown by canaries: {_shown(audit)}"] if audit.ledger or audit.claimed else []),
    ]
    head = ["| what | worst | who | attack, score (interval; best guess without it) |", "| --- | --- | --- | --- |"]
    lines = [_line(audit, row) for row in audit.rows if audit.says(row)]
    return "\n\n".join(
        [f"## {title(audit)}", "\n".join(f"- {fact}" for fact in facts), "\n".join([*head, *lines]), plain_words(audit)]
    )


def _line(audit: Audit, row: str) -> str:
    worst = audit.worst(row)
    who = audit.learners(row, worst.verdict)
    if worst.verdict == NOTHING_SEEN:
        who = [f"tried from: {', '.join(who)}"]
    elif len(who) == len(audit.parties) > 2:
        who = ["anybody"]
    score = "–"
    if worst.tried:
        one = worst.tried[0]
        interval = "" if one.interval is None else " ({:.2f} to {:.2f}".format(*one.interval)
        beside = "" if one.bar is None else f"{'; ' if interval else ' ('}{one.bar:.2f}"
        score = f"{one.attack.replace('_', ' ')}, {one.value:.2f}{interval}{beside}{')' * bool(interval or beside)}"
    return f"| {sentence_case(row)} | {worst.said} | {', '.join(who)} | {score} |"


def _claimed(audit: Audit) -> str:
    if not audit.claimed:
        return "none: nothing is differentially private here"
    return ", ".join(f"{name} {'none' if value is None else f'{value:.3g}'}" for name, value in audit.claimed.items())


def _shown(audit: Audit) -> str:
    tests = [f"{test.mechanism} at least {test.shown:.2f} ({test.verdict})" for test in audit.ledger]
    return ", ".join(tests) or "not tested"


def _bytes(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
