"""What algorithms declare about themselves, and what holds where one says nothing."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from covey import roles
from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import _EXPECTED, Declaration, declaration
from covey.algorithms.ifca import IFCA, ClusterUpdate
from covey.algorithms.pqfed.pqfed import PQFed
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_field_of_every_message_on_the_wire_has_a_role(name: str) -> None:
    declared = declaration(ALGORITHMS[name]())
    assert declared.sends and declared.replies
    assert bool(declared.asks) == bool(declared.answers) == bool(declared.further)
    for kind in (*declared.sends, *declared.replies, *declared.masked, *declared.asks, *declared.answers):
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


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", 7, "a text"),
        ("name", "", "a text"),
        ("title", None, "a text"),
        ("sends", ClusterUpdate, "a tuple of message classes"),
        ("replies", ("ClusterUpdate",), "a tuple of message classes"),
        ("further", "csp", "a tuple of texts"),
        ("trains", "many", "'one', 'clusters' or 'own'"),
        ("trains", ["one"], "'one', 'clusters' or 'own'"),
        ("sealing", None, "a text"),
        ("sealed_with", 1, "a text"),
        ("gives", ("identity",), r"a tuple of leaks\.Given"),
        ("key_kinds", {"z": "a key"}, "a table of functions"),
        ("measures", {"heat": "Heat"}, r"a table of measures\.Measure"),
        ("measures", ["heat"], r"a table of measures\.Measure"),
        ("surveyed", "yes", "True or False"),
        ("rounds_sent", 0, "a whole number of at least 1"),
    ],
)
def test_what_is_declared_wrongly_is_one_sentence(field: str, value: Any, expected: str) -> None:
    wrong: Any = type("Wrong", (IFCA,), {field: value})
    says = rf"^Wrong\.{field} is .*: expected {expected}"
    for ask in (lambda: declaration(wrong), lambda: declaration(wrong()), lambda: Experiment(algorithm=wrong())):
        with pytest.raises(CoveyError, match=says) as refused:
            ask()
        assert "\n" not in str(refused.value)


def test_an_algorithm_without_a_name_is_one_sentence() -> None:
    with pytest.raises(CoveyError, match="Nameless declares no name"):
        declaration(type("Nameless", (), {}))


def test_every_field_of_a_declaration_is_checked() -> None:
    assert set(_EXPECTED) == {f.name for f in fields(Declaration)}
