"""Reading covey's source as text: where a name stands that generic code should not know.

`python tests/support/house.py [src/covey]` prints what docs/decisions/house.md says of a tree, also of one that cannot be imported.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.crypto import blinded, sealing
from covey.data.partitions import PARTITIONS
from covey.data.sources import SOURCES
from covey.defences import DEFENCES
from covey.models import MODELS
from covey.names import OURS, Registry

SOURCE = Path(__file__).parents[2] / "src" / "covey"
KNOWING = ("papers", "presets.py", "presets")  # whose business is which thing was run


@dataclass(frozen=True)
class Literal:
    path: str  # below the package
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.text!r}"


@functools.cache
def modules(root: Path) -> list[tuple[Path, list[ast.AST]]]:
    """All nodes of every module; walked once, since a walk takes longer than what is asked of it."""
    return [
        (path.relative_to(root), list(ast.walk(ast.parse(path.read_text())))) for path in sorted(root.rglob("*.py"))
    ]


@functools.cache
def declarations(root: Path) -> dict[str, set[Path]]:
    """Name -> the modules that declare a thing of this name: `name = "…"` of a class or module, or a call with name= and title=."""
    declared: dict[str, set[Path]] = {}
    for path, nodes in modules(root):
        for node in nodes:
            for name in _declared(node):
                declared.setdefault(name, set()).add(path)
    return declared


def _declared(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.Module):
        for statement in node.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            value = getattr(statement, "value", None)
            both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            for one, given in zip(target.elts, value.elts) if both else [(target, value)]:
                if isinstance(one, ast.Name) and one.id == "name" and isinstance(given, ast.Constant):
                    yield str(given.value)
    if isinstance(node, ast.Call):
        words = {k.arg: k.value for k in node.keywords}
        name = words.get("name")
        if "title" in words and isinstance(name, ast.Constant):
            yield str(name.value)


def literals(root: Path, names: set[str]) -> list[Literal]:
    """Where generic code writes one of these names: not in a docstring, not in the name's own module or family folder."""
    own = declarations(root)
    places: list[Literal] = []
    for path, nodes in modules(root):
        if not set(path.parts) & set(KNOWING):
            silent = _docstrings(nodes)
            places += [
                Literal(path.as_posix(), node.lineno, node.value)
                for node in nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent
                if node.value in names and not any(_family(path, owner) for owner in own.get(node.value, ()))
            ]
    return sorted(places, key=lambda p: (p.path, p.line))


def _family(path: Path, owner: Path) -> bool:
    """A module, and those that share a folder of their own with it (`algorithms/mingledpie/…`)."""
    return path == owner or (path.parent == owner.parent and len(path.parts) > 2)


def _docstrings(nodes: list[ast.AST]) -> set[int]:
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def attributes_by_string(root: Path, fields: set[str]) -> list[Literal]:
    """`getattr(x, "models")` and its like, where the attribute is a field of a message that has a role."""
    return [
        Literal(path.as_posix(), word.lineno, str(word.value))
        for path, nodes in modules(root)
        for node in nodes
        for word in _spelt(node)
        if isinstance(word, ast.Constant) and word.value in fields
    ]


def _spelt(node: ast.AST) -> list[ast.expr]:
    """What stands for an attribute's name: in getattr(x, …), attrgetter(…), vars(x)[…], x.__dict__[…]."""
    if isinstance(node, ast.Call):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if called in ("getattr", "hasattr", "setattr"):
            return node.args[1:2]
        return list(node.args) if called in ("attrgetter", "methodcaller") else []
    if isinstance(node, ast.Subscript):
        held = getattr(node.value, "func", node.value)
        return [node.slice] if getattr(held, "id", getattr(held, "attr", "")) in ("vars", "__dict__") else []
    return []


def imports(root: Path) -> dict[str, set[str]]:
    """Module -> those of the same package that it imports, wherever it does: also inside a function, where a cycle would hide."""
    names = {_dotted(root, path): path for path, _ in modules(root)}
    graph: dict[str, set[str]] = {}
    for path, nodes in modules(root):
        module = _dotted(root, path)
        typed = {id(inner) for node in nodes if _for_types(node) for inner in ast.walk(node)}
        imported = [name for node in nodes if id(node) not in typed for name in _imported(node)]
        whole = {next((n for n in (name, name.rpartition(".")[0]) if n in names), "") for name in imported}
        graph[module] = whole - {"", module, root.name}
    return graph


def absent(root: Path, programs: Path) -> list[str]:
    """What programs outside the package import of it and is not there: nothing runs all of them, nor checks their types."""
    homes = {_dotted(root, path): _defined(nodes) for path, nodes in modules(root)}
    return [
        f"{path}:{node.lineno} {node.module} has no {name.name}"
        for path, nodes in modules(programs)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{root.name}.")
        for name in node.names
        if name.name not in homes.get(str(node.module), ()) and f"{node.module}.{name.name}" not in homes
    ]


def _defined(nodes: list[ast.AST]) -> set[str]:
    """Names that a module defines or imports, anywhere in it: more than can be imported, and cheap."""
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    made = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    taken = {a.asname or a.name for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    return stored | made | taken


def known_by_import(root: Path) -> list[str]:
    """Where a room imports the module of a thing that lives in another one: it would know it as well as by its name."""
    homes = {entry.path.partition(":")[0] for registry in registries().values() for entry in registry.entries}
    return [
        f"{path.as_posix()}: {home}"
        for path, nodes in modules(root)
        if not set(path.parts) & set(KNOWING)
        for home in sorted(
            {h for node in nodes for name in _imported(node) for h in homes if f"{name}.".startswith(f"{h}.")}
        )
        if home.split(".")[1] != path.parts[0]
    ]


def _dotted(root: Path, path: Path) -> str:
    parts = (root.name, *path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _for_types(node: ast.AST) -> bool:
    """What only a type checker reads."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "imports name the whole path"
        return [f"{node.module}.{name.name}" for name in node.names]
    return []


def registries() -> dict[str, Registry]:
    return {
        "algorithm": ALGORITHMS,
        "attack": ATTACKS,
        "defence": DEFENCES,
        "partition": PARTITIONS,
        "dataset": SOURCES,
        "model": MODELS,
        "encryption of sums": sealing.SCHEMES,
        "encryption of rows": blinded.SCHEMES,
    }


def classes() -> set[str]:
    """What the classes of these things are called."""
    entries = [entry for registry in registries().values() for entry in registry.entries if entry.origin == OURS]
    return {entry.path.partition(":")[2] for entry in entries} - {""}


def registered() -> set[str]:
    """Every name that an experiment may write for a thing that covey brings."""
    return {entry.name for registry in registries().values() for entry in registry.entries if entry.origin == OURS}


def knots(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups that import each other, directly or through others: what can be reached from where it can be reached."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        open_ends, known = [start], set[str]()
        while open_ends:
            more = graph.get(open_ends.pop(), set()) - known
            known |= more
            open_ends += more
        reached[start] = known
    tied = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in reached if a in reached[a]}
    return [set(group) for group in tied]


def rooms(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph between top-level names."""
    between: dict[str, set[str]] = {}
    for module, imported in graph.items():
        room = module.split(".")[1] if "." in module else module
        between.setdefault(room, set()).update(one.split(".")[1] for one in imported if "." in one)
    return {room: others - {room} for room, others in between.items()}


if __name__ == "__main__":
    tree = Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE).resolve()
    listed, graph = [one for one in literals(tree, registered()) if one.text != "none"], imports(tree)
    print(*listed, sep="\n")
    print(f"{len(listed)} literals in {len({(one.path, one.text) for one in listed})} places")
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports")
    print(f"modules that import each other: {sorted(map(len, knots(graph)))}")
    print(f"top-level names that do: {sorted(map(len, knots(rooms(graph))))} of {len(rooms(graph))}")
