"""Names become things, and things names; other packages stand beside covey; what cannot be resolved is one sentence."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import covey
from covey import names
from covey.algorithms import ALGORITHMS
from covey.algorithms.ifca import IFCA
from covey.attacks import ATTACKS
from covey.crypto import blinded, sealing
from covey.data.partitions import PARTITIONS
from covey.data.sources import SOURCES
from covey.defences import DEFENCES
from covey.errors import CoveyError
from covey.models import MODELS
from covey.names import Registry

REGISTRIES = [ALGORITHMS, ATTACKS, DEFENCES, PARTITIONS, SOURCES, MODELS, sealing.SCHEMES, blinded.SCHEMES]
METHODS = """
    def start(self, setting): ...
    def broadcast(self, state, client): ...
    def client(self, me, message): ...
    def aggregate(self, server, state, replies): ...
    def use(self, me, message): ...
"""


def test_the_outline_of_a_source_declares_what_the_source_does(monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(Path(str(covey.__file__)).parent.rglob("*.py"))
    read = names._declarations.__wrapped__
    outlined = [read(file) for file in files]
    monkeypatch.setattr(names, "_body", lambda text: ast.parse(text).body)
    assert outlined == [read(file) for file in files] and sum(map(len, outlined)) > 300


def test_a_text_at_the_margin_within_a_function_is_no_declaration() -> None:
    odd = '''
class Right:
    name = "right"
    title = """Of two
@lines"""

    @property
    def text(self):
        return """
name = "wrong"
"""

    async def rest(
        self,
    ) -> None: ...
'''
    (declared,) = names._body(odd)
    assert isinstance(declared, ast.ClassDef)
    assert names._literals(declared.body) == {"name": "right", "title": "Of two\n@lines"}


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda r: r.package)
def test_reading_the_sources_finds_what_importing_everything_finds(registry: Registry) -> None:
    top = sys.modules[registry.package]
    imported = {(e.name, e.path) for e in names._imported_entries(top)}
    assert {(e.name, e.path) for e in registry.entries} == imported
    for entry in registry.entries:
        thing = registry[entry.name]
        assert (entry.name, entry.title) == (thing.name, thing.title) and entry.origin == "covey"
        assert entry.label == (getattr(thing, "label", "") or entry.name)
    assert not registry.broken


def test_what_there_was_before_is_there() -> None:
    single, several = {"local", "fedavg", "fedprox", "scaffold", "feddyn"}, {"fedem", "ifca", "sattler", "fedsoft"}
    personal = {"fedavg_ft", "ditto", "fedper", "fedrep", "apfl", "perfedavg"}
    assert set(ALGORITHMS) >= single | several | personal | {"mingledpie", "routing", "pqfed", "fedcaprivacy"}
    assert len(ATTACKS) >= 21 and set(DEFENCES) >= {"dp_sgd", "ldp", "adp", "afc", "dropout", "l2"}
    assert set(sealing.SCHEMES) == {"none", "ckks", "bfv"} and set(blinded.SCHEMES) == {"none", "paillier", "bfv"}
    assert len(SOURCES) >= 16 and len(MODELS) >= 15  # more may come


def test_asking_for_names_imports_no_torch() -> None:
    script = """
        import sys
        from covey.algorithms import ALGORITHMS
        from covey.attacks import ATTACKS
        from covey.crypto import blinded, sealing
        from covey.data.partitions import PARTITIONS
        from covey.data.sources import SOURCES
        from covey.defences import DEFENCES
        from covey.models import MODELS
        for registry in (ALGORITHMS, ATTACKS, DEFENCES, PARTITIONS, SOURCES, MODELS, sealing.SCHEMES, blinded.SCHEMES):
            assert all(entry.title and entry.label for entry in registry.entries) and len(registry) > 2
        heavy = {"torch", "numpy", "scipy", "sklearn", "seal", "covey.algorithms.ifca"} & set(sys.modules)
        assert not heavy, heavy
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


# ---------------------------------------------------------------- packages of others


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with the module `theirs`, which raises when it is imported before `READY` is written."""
    (tmp_path / "theirs.py").write_text(
        f"class Own:\n    name = 'own'\n    title = 'an own one'\n    label = 'OWN'\n{METHODS}\n"
        f"class Lacking:\n    name = 'lacking'\n"
    )
    (tmp_path / "raises.py").write_text("raise RuntimeError('no weather today\\nand more')\n")
    (tmp_path / "exits.py").write_text("raise SystemExit('bye')\n")
    (tmp_path / "needs.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("theirs", None)
    ALGORITHMS.reread()


def declare(folder: Path, distribution: str, points: str) -> None:
    """Installs a distribution by hand: its metadata and entry points."""
    info = folder / f"{distribution}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[covey.algorithms]\n{points}\n")
    ALGORITHMS.reread()


def test_an_entry_point_stands_beside_covey_and_is_read_without_importing(package: Path) -> None:
    declare(package, "theirs", "own = theirs:Own")
    entry = ALGORITHMS.entry("own")
    assert (entry.title, entry.label, entry.origin) == ("an own one", "OWN", "theirs 1.2")
    assert "theirs" not in sys.modules
    assert ALGORITHMS.resolve("own").name == "own" and ALGORITHMS.label("own") == "OWN"


def test_what_is_not_covey_s_is_written_by_its_path_whoever_installed_what(package: Path) -> None:
    declare(package, "theirs", "own = theirs:Own")
    assert names.name_of(ALGORITHMS["own"]) == names.name_of(ALGORITHMS["own"]()) == "theirs:Own"
    assert names.name_of(IFCA) == "ifca"
    fresh = Registry("algorithm", "covey.algorithms", "covey.algorithms")
    assert fresh.label("theirs:Own") == "OWN" and fresh.installed("theirs:Own") is ALGORITHMS["own"]


def test_broken_entry_points_are_named_and_break_nothing(package: Path) -> None:
    declare(package, "broken", "gone = nowhere.at_all:X\nodd = 1/2\nraising = raises:X")
    assert [line.partition(" cannot")[0] for line in ALGORITHMS.broken] == [
        "algorithm 'gone' of broken 1.2 (nowhere.at_all:X)",
        "algorithm 'odd' of broken 1.2 (1/2)",
    ]
    assert ALGORITHMS["ifca"] is IFCA
    with pytest.raises(CoveyError, match=r"importing 'raises' failed with RuntimeError: no weather today$"):
        ALGORITHMS.resolve("raising")


def test_a_name_that_two_others_claim_must_be_written_out(package: Path) -> None:
    (package / "others.py").write_text((package / "theirs.py").read_text())
    declare(package, "others", "own = others:Own")
    declare(package, "theirs", "own = theirs:Own")
    says = r"'own' is claimed by others 1\.2 and by theirs 1\.2: write others:Own or theirs:Own"
    with pytest.raises(CoveyError, match=says):
        ALGORITHMS.resolve("own")
    things, problems = ALGORITHMS.loaded()
    assert "own" not in things and len(problems) == 1 and "claimed by others 1.2 and by" in problems[0]
    assert [ALGORITHMS.word(e) for e in ALGORITHMS.entries if e.name == "own"] == ["others:Own", "theirs:Own"]
    assert ALGORITHMS.resolve("theirs:Own").name == "own"


def test_covey_s_own_name_stays_covey_s_whatever_is_installed(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from covey.cli.look import list_
    from covey.experiment.experiment import Experiment
    from covey.experiment.own_code import own_code

    declare(package, "theirs", "ifca = theirs:Own")
    assert ALGORITHMS.resolve("ifca") is ALGORITHMS["ifca"] is ALGORITHMS.installed("ifca") is IFCA
    assert names.name_of(IFCA) == "ifca" and ALGORITHMS.label("ifca") == "IFCA"
    assert isinstance(Experiment.of(algorithm="ifca").algorithm, IFCA)
    assert own_code({"algorithm": "ifca"}) == []
    list_("algorithms")
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words.count("ifca") == words.count("theirs:Own") == 1


def test_a_module_can_stand_at_a_path(package: Path) -> None:
    (package / "vpkg").mkdir()
    (package / "vpkg" / "__init__.py").write_text("")
    (package / "vpkg" / "enc.py").write_text(
        "name, title = 'enc', 'an own one'\ngenerate_keys = sealer = mixer = print\n"
    )
    (package / "vpkg" / "torn.py").write_text("raise RuntimeError('torn')\n")
    assert sealing.SCHEMES.resolve("vpkg:enc") is sys.modules["vpkg.enc"]
    with pytest.raises(CoveyError, match=r"importing 'vpkg\.torn' failed with RuntimeError: torn"):
        sealing.SCHEMES.resolve("vpkg:torn")
    with pytest.raises(CoveyError, match=r"module 'vpkg' has no 'encc', did you mean 'enc'"):
        sealing.SCHEMES.resolve("vpkg:encc")


def test_what_can_be_loaded_is_there_whatever_others_break_or_claim(package: Path) -> None:
    declare(package, "theirs", "own = theirs:Own\nifca = theirs:Own\nraising = raises:X\ngone = nowhere.at_all:X")
    things, problems = ALGORITHMS.loaded()
    assert things["ifca"] is IFCA and things["own"].name == "own" and "raising" not in things
    assert len(problems) == 3
    assert any("'ifca' of theirs 1.2 is left out" in line for line in problems)
    assert any("no weather today" in line for line in problems)


def test_an_entry_point_must_be_called_as_its_thing(package: Path) -> None:
    declare(package, "theirs", "other = theirs:Own")
    with pytest.raises(CoveyError, match=r"brings algorithm 'other' .* calls itself 'own'"):
        ALGORITHMS.resolve("other")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ifka", "unknown algorithm 'ifka', did you mean 'ifca'"),
        ("theirs.Own", r"package\.module:Own"),
        ("nowhere:X", "there is no module 'nowhere' here"),
        ("theirs.deeper:X", "there is no module 'theirs.deeper' here"),
        ("theirs:Ownn", "module 'theirs' has no 'Ownn', did you mean 'Own'"),
        ("theirs:Own.deeper", "class Own has no 'deeper'"),
        ("theirs:Lacking", "is no algorithm: it has no start, broadcast, client, aggregate, use"),
        ("raises:X", "failed with RuntimeError: no weather today$"),
        ("exits:X", "failed with SystemExit: bye"),
        ("needs:X", "its module needs 'not_installed_anywhere'"),
        ("../evil:X", "cannot be read"),
        ("__main__:X", "inside a function, a notebook or a script"),
    ],
)
def test_what_cannot_be_resolved_is_one_sentence(package: Path, text: str, says: str) -> None:
    with pytest.raises(CoveyError, match=says) as refused:
        ALGORITHMS.resolve(text)
    assert "\n" not in str(refused.value)


def test_a_path_and_back(package: Path) -> None:
    own: Any = ALGORITHMS.resolve("theirs:Own")
    assert names.name_of(own()) == "theirs:Own"
    assert ALGORITHMS.label("theirs:Own") == ALGORITHMS.label("own") == "OWN" and ALGORITHMS.label("never:Met") == "Met"
    assert names.name_of(IFCA()) == "ifca"
    assert "theirs:Own" not in ALGORITHMS


def test_what_came_from_elsewhere_never_imports(package: Path) -> None:
    fresh = Registry("algorithm", "covey.algorithms", "covey.algorithms")
    with pytest.raises(CoveyError, match="unknown algorithm"):
        fresh.installed("theirs:Own")
    assert "theirs" not in sys.modules
    own = fresh.resolve("theirs:Own")
    assert fresh.installed("own") is fresh.installed("theirs:Own") is own and fresh.installed("ifca") is IFCA


def test_a_script_s_class_is_named_by_its_file(tmp_path: Path) -> None:
    script = tmp_path / "my_script.py"
    script.write_text(
        f"from covey.algorithms import ALGORITHMS\nfrom covey import names\nclass Own:\n    name = 'own'\n{METHODS}\n"
        "if __name__ == '__main__':\n"
        "    path = names.name_of(Own())\n"
        "    assert path == 'my_script:Own', path\n"
        "    assert ALGORITHMS.resolve(path) is Own\n"
    )
    subprocess.run([sys.executable, script.name], cwd=tmp_path, check=True)
    again = "from covey.algorithms import ALGORITHMS; assert ALGORITHMS.resolve('my_script:Own').name == 'own'"
    subprocess.run([sys.executable, "-P", "-c", again], cwd=tmp_path, check=True)


def test_labels_of_datasets_keep_what_follows() -> None:
    assert SOURCES.label("lfw:smile") == "LFW:smile" and SOURCES.label("nobody's") == "nobody's"


def test_covey_itself_imports_nothing_heavy_and_still_has_its_names() -> None:
    script = "import sys, covey; assert 'numpy' not in sys.modules; assert covey.CoveyError and 'run' in dir(covey)"
    subprocess.run([sys.executable, "-c", script], check=True)
    import covey

    assert covey.Experiment and covey.run and covey.Result
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = covey.runn  # type: ignore[attr-defined]
