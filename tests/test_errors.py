"""Tails of messages about a word that nobody knows."""

from __future__ import annotations

import pytest

from covey.data.partitions.shifts import FeatureShift
from covey.errors import CoveyError, meant, nearest


def test_a_near_word_is_offered_and_else_the_list() -> None:
    assert nearest("stedy", ("counts", "steady")) == meant("stedy", ("counts", "steady")) == ", did you mean 'steady'?"
    assert (
        nearest("xyz", ("counts", "steady")) == "; known: counts, steady" and meant("xyz", ("counts", "steady")) == ""
    )


def test_a_message_lists_what_there_is_once() -> None:
    with pytest.raises(CoveyError) as e:
        FeatureShift(look="sepia")
    assert str(e.value).count("rotation") == 1
