"""The one text table: hand-drawn ones."""

from __future__ import annotations

import pytest

from covey.report.text_table import letters, text_table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert text_table([["", "ours", "paper"], ["IFCA", "97.1 %", ""], ["PQ", "5", "6"]]) == [
        "      ours    paper",
        "IFCA  97.1 %",
        "PQ    5       6",
    ]


def test_numbers_stand_to_the_right_and_unbreakable_spaces_break() -> None:
    rows = [["a", "1,000", "x"], ["bb", "7", "3\u00a0%"]]
    assert text_table(rows, indent="  ", right=(1,)) == ["  a   1,000  x", "  bb      7  3 %"]


def test_the_last_column_wraps_under_itself() -> None:
    rows = [["name", "one two three four five six seven"]]
    assert text_table(rows, width=34) == ["name  one two three four five six", "      seven"]
    assert text_table(rows, width=20) == ["name  one two three four five six seven"], "too narrow to wrap"
    assert text_table(rows) == ["name  one two three four five six seven"], "a pipe's lines stay whole"


def test_wide_letters_take_two_columns() -> None:
    assert letters("数据") == 4 and letters("e\u0301") == 1 and letters("±×–") == 3
    assert text_table([["数据", "x"], ["abc", "y"]]) == ["数据  x", "abc   y"]


def test_an_empty_table_and_a_ragged_one() -> None:
    assert text_table([]) == []
    assert text_table([["", ""]]) == [""]
    with pytest.raises(ValueError):
        text_table([["a"], ["b", "c"]])
