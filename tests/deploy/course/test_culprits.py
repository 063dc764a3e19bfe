"""Whose reply an algorithm breaks on, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from covey.deploy.course.culprits import culprits
from covey.errors import CoveyError


def breaking(when: Callable[[Sequence[int]], bool]) -> Callable[[Sequence[int]], None]:
    def attempt(senders: Sequence[int]) -> None:
        if when(senders):
            raise ValueError

    return attempt


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (lambda senders: 2 in senders or 3 in senders, [2, 3]),
        (lambda senders: {1, 3} <= set(senders), [1]),  # only together: without either it goes on
        (lambda senders: True, []),
        (lambda senders: len(senders) > 2, []),  # nobody's fault alone, and no one of them makes it go away
    ],
)
def test_those_alone_or_one_without_whom_it_goes_on(when: Callable[[Sequence[int]], bool], expected: list[int]) -> None:
    assert culprits([0, 1, 2, 3], breaking(when)) == expected


def test_what_the_algorithm_refuses_in_words_is_no_break() -> None:
    def attempt(senders: Sequence[int]) -> None:
        raise CoveyError("too few")

    assert culprits([0, 1], attempt) == []
    assert culprits([4], breaking(lambda senders: True)) == []
