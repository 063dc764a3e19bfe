"""The house: generic code knows no thing by name, things say what they are, and every room says what lives there.

Which room may import which is import-linter's to check (`[tool.importlinter]` in pyproject, run by `make check`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import typing
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from covey import leaks, roles
from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import declaration
from covey.attacks import ATTACKS
from mutants import MUTANTS
from support.house import (
    SOURCE,
    Literal,
    absent,
    attributes_by_string,
    classes,
    declarations,
    imports,
    known_by_import,
    literals,
    modules,
    registered,
)

TESTS = Path(__file__).parent
FILES_PER_FOLDER = 16  # about fifteen: what one look takes in

ABSENCE = {"none"}  # no encryption, no defence: everybody may know what is not there
WORDS = {
    # A name that means something else where it stands. One line each, with what it means there.
    ("leaks.py", "property"): "a row of the audit",
    ("leaks.py", "category"): "a row of the audit",
    ("leaks.py", "membership"): "a row of the audit",
    ("leaks.py", "linkage"): "a row of the audit",
    ("experiment/experiment.py", "digits"): "the default of an experiment",
    ("experiment/experiment.py", "label_sets"): "the default of an experiment",
    ("experiment/experiment.py", "fcnn"): "the default of an experiment",
    ("experiment/experiment.py", "ifca"): "the default of an experiment",
    ("algorithms/clustered/auto_k.py", "ifca"): "what runs under it where nobody says otherwise",
    ("experiment/participation.py", "dropout"): "a stream of random numbers: who drops out",
    ("learn/work.py", "dropout"): "a stream of random numbers: units of a layer",
    ("learn/flat.py", "local"): "buffers that a client keeps",
    ("learn/keyed.py", "dropout"): "torch's function of that name",
    ("learn/schedule/waves.py", "dropout"): "a stream of random numbers: units of a layer",
    ("engines/ray/pool.py", "local"): "Ray's word for a cluster of its own",
    ("algorithms/fedem.py", "membership"): "what a client remembers: its weights of the clusters",
    ("algorithms/fedsoft.py", "membership"): "what a client remembers: its weights of the clusters",
    ("algorithms/clustered/fedrc.py", "membership"): "what a client remembers: its weights of the clusters",
    ("algorithms/fedcaprivacy/fedcaprivacy.py", "membership"): "what a client remembers: its weights of the clusters",
    ("attacks/isolation/isolation.py", "membership"): "what a client remembers: its weights of the clusters",
    ("rounds/record.py", "membership"): "what a client remembers: its weights of the clusters",
    ("algorithms/pqfed/pqfed.py", "fedavg"): "the default of what trains a group",
    ("attacks/category/category.py", "mlp"): "a model of the attacker's own",
    ("attacks/membership/strangers.py", "feature_clusters"): "a note of the federation: kinds of samples",
    ("attacks/observe.py", "property"): "the attacker's rows that have it",
    ("experiment/exposure.py", "property"): "whether a round shows it",
    ("crypto/paillier/vectors.py", "paillier"): "the label of a sealed vector",
    ("ledger/events.py", "client_dp"): "the mechanism of an event, as stored results have it",
    ("ledger/events.py", "randomised_response"): "the mechanism of an event, as stored results have it",
    ("defences/client_dp/client_dp.py", "local"): "who adds noise: each client all of it",
    ("ledger/events.py", "dp_sgd"): "the mechanism of an event, as stored results have it",
}
METHODS = {("algorithms/contract.py", "models")}  # an algorithm's own count of them: no message has it


@functools.cache
def named() -> list[Literal]:
    return literals(SOURCE, registered())


def messages() -> set[type]:
    declared = [
        kind
        for cls in ALGORITHMS.values()
        for way in ("sends", "replies", "masked", "asks", "answers", "consults", "advises")
        for kind in _declared(cls, way)
    ]
    return {inner for kind in declared for inner in _with_parts(kind)}


def _declared(algorithm: Any, way: str) -> tuple[type, ...]:
    """What an algorithm declares; a property is asked of an instance."""
    declared = getattr(algorithm, way, ())
    return tuple(getattr(algorithm(), way)) if isinstance(declared, property) else tuple(declared)


def _with_parts(kind: type) -> set[type]:
    """A message class, and those that its fields hold."""
    hints = typing.get_type_hints(kind, include_extras=True).values()
    parts = {part for hint in hints for part in roles.classes(hint) if dataclasses.is_dataclass(part)}
    inside = {part for part in parts if not issubclass(part, roles.Role)} - {kind}
    return {kind}.union(*(_with_parts(part) for part in inside))


def test_generic_code_names_no_algorithm_attack_defence_partition_dataset_model_or_encryption() -> None:
    places = [p for p in named() if p.text not in ABSENCE and (p.path, p.text) not in WORDS]
    assert places == [], f"{len(places)} literals:\n" + "\n".join(map(str, places))


def test_exceptions_are_still_needed() -> None:
    assert set(WORDS) - {(p.path, p.text) for p in named()} == set()


def test_no_field_of_a_message_is_read_by_its_spelling() -> None:
    fields = {field for kind in messages() for field in roles.of(kind)}
    assert [p for p in attributes_by_string(SOURCE, fields) if (p.path, p.text) not in METHODS] == []


def test_no_thing_is_known_by_the_name_of_its_class() -> None:
    """Nor by its label, which is often the same word: in its own file it may stand."""
    homes = declarations(SOURCE)
    own = {(path.as_posix(), name) for names in homes.values() for path in names for name in classes()}
    words = {("report/sections/quality.py", "Spread")}  # how far apart clients are
    places = [p for p in literals(SOURCE, classes()) if (p.path, p.text) not in own | words]
    assert places == [], "\n".join(map(str, places))


def test_no_thing_is_known_by_its_import() -> None:
    """What is imported can be asked for with `is` and `isinstance`: a name without a literal."""
    assert known_by_import(SOURCE) == [
        "attacks/acquisition.py: covey.algorithms.sattler"  # its messages: it plays a client of that protocol
    ]


def test_no_message_is_known_by_the_name_of_its_class() -> None:
    assert literals(SOURCE, {kind.__name__ for kind in messages()}) == []


@pytest.mark.parametrize("kind", sorted(messages(), key=lambda kind: f"{kind.__module__}.{kind.__name__}"), ids=str)
def test_every_field_of_a_message_has_a_role(kind: type) -> None:
    assert {field.name for field in dataclasses.fields(kind)} == set(roles.of(kind))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_says_what_it_sends_and_gets(name: str) -> None:
    algorithm = ALGORITHMS[name]
    assert algorithm.label and algorithm.title
    trains = declaration(algorithm).trains
    assert trains in ("one", "clusters", "own")
    exchanges = bool(_declared(algorithm, "sends")) and bool(_declared(algorithm, "replies"))
    assert exchanges or trains == "own"


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_every_attack_says_what_it_is_about_how_to_read_it_and_against_what(name: str) -> None:
    attack = ATTACKS[name]
    assert isinstance(attack.row, leaks.Leak)
    assert set(attack.seen_from) <= set(leaks.PARTIES) and attack.seen_from
    assert attack.means and attack.controls


def test_every_folder_says_what_lives_there_and_is_small() -> None:
    folders = {path.parent for path, _ in modules(SOURCE)}
    silent = [
        folder.as_posix()
        for folder in sorted(folders)
        if not (SOURCE / folder / "__init__.py").is_file()
        or not ast.get_docstring(ast.parse((SOURCE / folder / "__init__.py").read_text()))
    ]
    assert silent == []
    crowded = {
        folder.as_posix(): count
        for folder in sorted(folders)
        if (count := len(list((SOURCE / folder).glob("*.py"))) - 1) > FILES_PER_FOLDER
    }
    assert crowded == {}


def test_no_modules_import_each_other_not_even_inside_functions() -> None:
    """import-linter keeps the floors; within a room, and behind imports of functions, this does. A cycle is said by the error."""
    graph = imports(SOURCE)
    assert sum(map(len, graph.values())) > 2000
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_what_programs_import_is_there(folder: str) -> None:
    assert absent(SOURCE, TESTS.parent / folder) == []


def test_tests_lie_in_the_rooms_of_what_they_test() -> None:
    own = {
        "support",
        "docs",
        "fuzz",
    }  # what tests share; what documents show; readers and parties of all rooms under bad input
    rooms = {path.relative_to(TESTS).parent for path in TESTS.rglob("test_*.py")}
    assert [
        r.as_posix() for r in sorted(rooms) if r.parts[:1] and r.parts[0] not in own and not (SOURCE / r).is_dir()
    ] == []


def test_every_mutant_breaks_a_line_that_stands_there_once_for_tests_that_are_there() -> None:
    """`make mutants` takes long and is seldom run: what it would find stale is seen here."""
    for mutant in MUTANTS:
        assert (SOURCE / mutant.file).read_text().count(mutant.old) == 1, f"{mutant.file}: {mutant.old}"
        assert all((TESTS / name).exists() for name in mutant.tests.split()), mutant.tests
