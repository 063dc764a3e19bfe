"""The coordinator's time at a silo whose clock is another."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from covey.deploy.flower.clock import Clock, duration

NOON = 1_800_000_000.0


@pytest.mark.parametrize("ahead", [0.0, 1.4, -2.0, 600.0, -600.0, 3 * 86400.0])
def test_a_silo_keeps_the_coordinators_time(ahead: float) -> None:
    said: list[str] = []
    clock = Clock(said.append, local=lambda: NOON + ahead)
    clock.hear(formatdate(NOON, usegmt=True), clock.asked())
    assert abs(clock.now() - NOON) < 3.0  # Flower takes what is up to 5 s ahead of it
    assert len(said) == (abs(ahead) > 60)


def test_it_is_said_once_and_again_where_it_changes() -> None:
    said: list[str] = []
    clock = Clock(said.append, local=lambda: NOON)
    for behind in (600, 601, 599, 0, 600):
        clock.hear(formatdate(NOON + behind, usegmt=True), clock.asked())
    assert [text.partition(";")[0] for text in said] == [
        "this machine's clock is 10 minutes behind the coordinator's",
        "this machine's clock is that of the coordinator again",
        "this machine's clock is 10 minutes behind the coordinator's",
    ]


def test_a_slow_answer_says_little() -> None:
    """Dated somewhere between question and answer."""
    times = iter([NOON + 20.0] * 9)
    clock = Clock(local=lambda: next(times))
    clock.hear(formatdate(NOON + 1, usegmt=True), NOON)
    assert clock.ahead == 0.0


@pytest.mark.parametrize("date", [None, "", "yesterday", "Mon, 99 Jan 2026 00:00:00 GMT"])
def test_no_date_changes_nothing(date: str | None) -> None:
    clock = Clock(local=lambda: NOON)
    clock.hear(date, NOON)
    assert clock.now() == NOON


def test_durations() -> None:
    assert [duration(s) for s in (1, 90, -600, 7300, 3 * 86400)] == [
        "1 seconds",
        "90 seconds",
        "10 minutes",
        "2 hours",
        "3 days",
    ]
