"""Commands as they are shown: what one would type, and what reads back as it was."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from covey.cli.options import comma_separated, typed


@given(st.lists(st.text(alphabet="ab ['\"]$`\\\\!=,", max_size=8), max_size=4))
def test_a_command_that_is_shown_reads_back_as_it_was(words: list[str]) -> None:
    assert shlex.split(typed("covey run", words)) == ["covey", "run", *words]


def test_a_command_is_shown_as_one_would_type_it() -> None:
    shown = typed("covey run", ["ifca-digits", "--set=attacks=['a1']"])
    assert shown == "covey run ifca-digits \"--set=attacks=['a1']\""
    assert typed("covey run", []) == "covey run"


def test_names_between_commas() -> None:
    assert comma_separated(" north, south,,") == ["north", "south"]
