"""What algorithms declare about themselves, and what holds where one says nothing."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from covey import roles
from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import Declaration, declaration
from covey.algorithms.ifca import ClusterUpdate
from covey.algorithms.pqfed.pqfed import PQFed


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_field_of_every_message_on_the_wire_has_a_role(name: str) -> None:
    declared = declaration(ALGORITHMS[name]())
    assert declared.sends and declared.replies
    assert bool(declared.asks) == bool(declared.answers) == bool(declared.further)
    for kind in (*declared.sends, *declared.replies, *declared.asks, *declared.answers):
        assert set(roles.of(kind)) == {f.name for f in fields(kind)}, kind
    assert declared.trains in ("one", "clusters", "own")
    assert declared.label != declared.name


def test_an_algorithm_that_says_nothing_has_defaults() -> None:
    @dataclass(frozen=True)
    class Mute:
        name: ClassVar[str] = "mute"
        title: ClassVar[str] = "says nothing"

    assert declaration(Mute()) == Declaration("mute", "says nothing", "mute")


def test_a_class_is_asked_as_far_as_it_can_answer() -> None:
    assert declaration(ALGORITHMS["ifca"]).replies == (ClusterUpdate,)
    assert declaration(PQFed).replies == ()  # depends on what trains the group
    assert ClusterUpdate in declaration(PQFed(under="ifca")).replies


def test_a_renamed_algorithm_declares_the_same() -> None:
    for name, cls in ALGORITHMS.items():
        renamed: Any = type("Mine", (cls,), {"name": "mine"})()
        ours, theirs = declaration(renamed), declaration(cls())
        assert {f.name for f in fields(Declaration) if getattr(ours, f.name) != getattr(theirs, f.name)} == {"name"}, (
            name
        )
