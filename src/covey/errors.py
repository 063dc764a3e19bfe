"""The one exception that means "you can fix this": the command line prints its message and no traceback. And one warning."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 3  # clients whose values are no numbers, in a sentence


class CoveyError(Exception):
    """Bad input: says what was found, what was expected, and what to change."""


class NotFinite(CoveyError):
    """Training, or an evaluation, ended in values that are no numbers: a rate that is too high, or somebody's poison.

    `of`: whose, as far as it is known: the places of requests, then the numbers of clients.
    """

    def __init__(self, sentence: str, of: Sequence[int] = ()) -> None:
        super().__init__(sentence)
        self.of = tuple(of)

    def by(self, clients: Sequence[int]) -> NotFinite:
        """The same, which says whose values they are."""
        if not clients:
            return self
        listed = ", ".join(map(str, clients[:NAMED])) + (
            f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
        )
        return NotFinite(f"{self} (client{'s' if len(clients) > 1 else ''} {listed})", clients)


class Unavailable(CoveyError):
    """What is asked for cannot be done on this machine, or not now, and may be on another, or later: it says nothing about what was
    asked for.
    """


class Damaged(CoveyError):
    """A file of a run cannot be read. `found`: what is wrong with it, for who knows better what to do about it."""

    def __init__(self, sentence: str, found: str = "") -> None:
        super().__init__(sentence)
        self.found = found or sentence


class CoveyWarning(UserWarning):
    """What a user should know though the run goes on: the command line prints its message alone."""


def printable(words: str, most: int = 4000) -> str:
    """Words that somebody else may have written, for a terminal, a log or a sentence: what a terminal would obey is written out,
    and there are no more than so many letters.
    """
    shown = words if len(words) <= most else f"{words[:most]}…"
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def meant(word: str, known: list[str] | tuple[str, ...]) -> str:
    """`", did you mean 'x'?"`, or nothing: the tail of a message that lists what there is."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean '{close[0]}'?" if close else ""


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """`", did you mean 'x'?"`, or the list of what there is: the tail of an unknown-name message."""
    return meant(word, known) or f"; known: {', '.join(known)}"
