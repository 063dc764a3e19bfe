"""Things by name: what there is of each kind, where it lies, and how a text becomes the thing that it names.

Every kind (algorithm, attack, defence, partition, dataset, model, encryption) has one `Registry`. What covey brings is found
by reading the sources of the kind's folder, not by importing and not from a list: a thing is

    a class with a literal `name` and `title` (and `label`, the name as its authors write it) in its body,
    a variable that is assigned a call with literal `name=` and `title=`, or
    a module with a literal `name` and `title` of its own.

What other packages bring they declare as entry points of the registry's group. A name that covey has means covey's own thing,
whoever else claims it; one that two other packages claim means nothing. Everything else is reached by its path,
`package.module:Class`; what is not covey's is also written down so, to be read back where no entry point is.

Importing a path runs its module, so paths are resolved in experiments that a person wrote, and never in what another party
sent: that is what `installed` is for.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, MappingProxyType, ModuleType
from typing import Any

from covey.errors import CoveyError, nearest

OURS = "covey"
MAIN = "__main__"
ELSEWHERE = "this came up while clients computed"
_REGISTRIES: list[Registry] = []
_OWN: set[str] = set()  # packages and modules of other people that an experiment has named


@dataclass(frozen=True)
class Entry:
    """One thing that has a name. `declared` holds what its source says in literals, inherited values left out."""

    name: str
    path: str  # package.module:Class, or package.module where the module is the thing
    origin: str  # "covey", or the distribution that brought it and its version
    declared: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def title(self) -> str:
        return str(self.declared.get("title", ""))

    @property
    def label(self) -> str:
        return str(self.declared.get("label", self.name))


class Registry(Mapping[str, Any]):
    """What there is of one kind: name -> thing. Asking which names there are imports nothing; a lookup imports one module."""

    def __init__(self, kind: str, package: str, group: str, offers: tuple[str, ...] = ()) -> None:
        self.kind = kind  # as sentences name it
        self.package = package  # whose folder holds what covey brings
        self.group = group  # of entry points
        self.offers = offers  # what every thing of this kind must have
        self._met: dict[str, Any] = {}  # things reached by path in this process, by that path and by their own name
        _REGISTRIES.append(self)

    # ------------------------------------------------------------ what there is

    @functools.cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All of them, covey's first; one name may stand twice, where two packages claim it: see `claims`."""
        return self._read[0]

    @functools.cached_property
    def broken(self) -> tuple[str, ...]:
        """A sentence for every entry point that names nothing that is there."""
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        entries, broken = list(_own_entries(self.package)), []
        for point in _entry_points(self.group):
            entry = _entry(point)
            if isinstance(entry, str):
                broken.append(f"{self.kind} {entry}")
            elif (entry.name, entry.path) not in {(e.name, e.path) for e in entries}:
                entries.append(entry)
        return tuple(entries), tuple(broken)

    @functools.cached_property
    def _claims(self) -> dict[str, list[Entry]]:
        claims: dict[str, list[Entry]] = {}
        for entry in self.entries:  # covey's come first: nobody who installs a package loses what was there
            before = claims.setdefault(entry.name, [])
            if not before or before[0].origin != OURS:
                before.append(entry)
        return claims

    def claims(self, name: str) -> tuple[Entry, ...]:
        """What a name could mean: covey's own thing alone where it has one, else all that claim it."""
        return tuple(self._claims.get(name, ()))

    def word(self, entry: Entry) -> str:
        """What to write for an entry: its name where that means this one and no other, else its path."""
        return entry.name if self.claims(entry.name) == (entry,) else entry.path

    def reread(self) -> None:
        """Forgets what was read: for a process in which a package was installed since."""
        for cached in ("entries", "broken", "_read", "_claims"):
            self.__dict__.pop(cached, None)
        _all_entry_points.cache_clear()
        importlib.invalidate_caches()

    def entry(self, name: str) -> Entry:
        """The one entry that this name means; CoveyError where there is none or more than one."""
        claims = self.claims(name)
        if not claims:
            raise CoveyError(f"unknown {self.kind} '{name}'{nearest(name, list(self))}{self._hint(name)}")
        if len(claims) > 1:
            raise CoveyError(
                f"{self.kind} '{name}' is claimed by {' and by '.join(e.origin for e in claims)}: "
                f"write {' or '.join(e.path for e in claims)}"
            )
        return claims[0]

    def label(self, name: str) -> str:
        """The name as its authors write it. What nobody registered and nobody resolved stays as it is, a path is its last part."""
        base, colon, rest = name.partition(":")  # of a dataset the rest names a label, of a path the class
        if base in self._claims:
            return self._claims[base][0].label + colon + rest
        if registered := [e.label for e in self.entries if e.path == name]:
            return registered[0]
        return str(getattr(self._met.get(name), "label", "")) or rest.rpartition(".")[2] or name

    # ------------------------------------------------------------ the mapping

    def __getitem__(self, name: str) -> Any:
        if name not in self._claims:
            raise KeyError(name)
        return self._load(self.entry(name))

    def loaded(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """(name -> thing, a sentence for each that is left out): one broken package of somebody's spoils nothing for others.

        A name means what it means everywhere: covey's own thing, and of two other packages' neither.
        """
        things: dict[str, Any] = {}
        problems = list(self.broken)
        for name in self:
            try:
                things[name] = self._load(self.entry(name))
            except CoveyError as problem:
                problems.append(str(problem))
        problems += [
            f"{self.kind} '{e.name}' of {e.origin} is left out: the name is covey's own, so write {e.path}"
            for e in self.entries
            if e not in self.claims(e.name)
        ]
        return things, tuple(problems)

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, name: object) -> bool:
        return name in self._claims

    # ------------------------------------------------------------ from a text to a thing, and back

    def resolve(self, text: str) -> Any:
        """The thing of a name or of a path `package.module:Class`. A path is imported: only for texts that a person wrote."""
        if text in self or ":" not in text:
            return self._load(self.entry(text))
        thing = self._checked(import_path(text, self.kind), text)
        self._met |= {text: thing, _own_name(thing) or text: thing}
        return thing

    def installed(self, name: str) -> Any:
        """The thing of a name or path that came from elsewhere: one that is registered, or that this process resolved before."""
        if name not in self and name in self._met:
            return self._met[name]
        registered = [e for e in self.entries if e.path == name]
        return self._load(registered[0] if registered else self.entry(name))

    def knows(self, kind: type) -> bool:
        """Whether this very class is covey's own of its name."""
        claims = self.claims(_own_name(kind) or "")
        return any(e.origin == OURS and _loaded(e.path) is kind for e in claims)

    def _load(self, entry: Entry) -> Any:
        thing = self._checked(import_path(entry.path, self.kind), entry.path)
        if (own := _own_name(thing)) and own != entry.name:
            raise CoveyError(
                f"{entry.origin} brings {self.kind} '{entry.name}' ({entry.path}), which calls itself '{own}': "
                "its entry point and its name must be the same"
            )
        return thing

    def _checked(self, thing: Any, path: str) -> Any:
        if lacking := [name for name in self.offers if not hasattr(thing, name)]:
            raise CoveyError(f"{path} is no {self.kind}: it has no {', '.join(lacking)}")
        return thing

    def _hint(self, name: str) -> str:
        return f" (one of your own is written package.module:{name.rpartition('.')[2]})" if "." in name else ""


def name_of(thing: Any) -> str:
    """What `resolve` reads back wherever the code is, of an object or a class: the name of what covey brings, else its path."""
    kind: Any = thing if isinstance(thing, type) else type(thing)
    return str(kind.name) if any(registry.knows(kind) for registry in _REGISTRIES) else path_of(kind)


def distribution_of(path: str) -> str:
    """The distribution that brings a path's package, and its version; "" where none says so. Nothing is imported."""
    from importlib import metadata

    top = path.partition(":")[0].partition(".")[0]
    named = metadata.packages_distributions().get(top, [])
    return ", ".join(f"{name} {metadata.version(name)}" for name in dict.fromkeys(named))


def import_path(path: str, kind: str) -> Any:
    """The class, object or module that stands at `package.module:Class`, or one sentence. The current folder is searched, last."""
    module, colon, attributes = path.partition(":")
    what = f"{kind} '{path}'"
    main = sys.modules[MAIN]
    if "<" in path or (module == MAIN and not hasattr(main, attributes.partition(".")[0])):
        raise CoveyError(
            f"{what} was defined inside a function, a notebook or a script that cannot be imported: "
            "put it in a module, and write package.module:Class"
        )
    if colon and not all(part.isidentifier() for part in [*module.split("."), *attributes.split(".")]):
        raise CoveyError(f"{what} cannot be read: expected a name, or package.module:Class")
    if (top := module.partition(".")[0]) != OURS:
        _OWN.add(top)
    thing: Any = main if module in (MAIN, _script()) else _import(module, what)
    for part in attributes.split(".") if colon else ():
        if not hasattr(thing, part) and not _has_module(thing, part):
            known = [name for name in vars(thing) if not name.startswith("_")]
            raise CoveyError(f"{what}: {_called(thing, module)} has no '{part}'{nearest(part, known)}")
        thing = getattr(thing, part) if hasattr(thing, part) else _import(f"{thing.__name__}.{part}", what)
    return thing


def path_of(kind: type) -> str:
    """`package.module:Class`. A class of a script is named by the file, where that could be imported from the current folder."""
    module = kind.__module__
    return f"{_script() if module == MAIN else module}:{kind.__qualname__}"


def fault_of_own_code(error: BaseException) -> str | None:
    """A sentence on an error that came up in code of somebody else's that an experiment names; None where it was in covey's.

    Also None where COVEY_DEBUG is set: then whoever asks shows the traceback.
    """
    if ELSEWHERE in getattr(error, "__notes__", ()):
        return None
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if not _is_made(frame)]
    tops = [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame, _ in frames]
    called = [at for at, top in enumerate(tops) if top in _OWN and OURS in tops[:at]]
    if not called or os.environ.get("COVEY_DEBUG"):
        return None
    frame, line = frames[called[-1]]
    words = (str(error).strip().splitlines() or ["without a word"])[0]
    return (
        f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname} failed at {frame.f_code.co_filename}:{line} with "
        f"{type(error).__name__}: {words}; this is no code of covey's (COVEY_DEBUG=1 shows the traceback)"
    )


def came_up_elsewhere(error: BaseException) -> None:
    """Notes of an error in what covey did while code of somebody else's waited for it that it is no fault of that code."""
    if not isinstance(error, CoveyError) and fault_of_own_code(error) is None:
        error.add_note(ELSEWHERE)


def _is_made(frame: FrameType) -> bool:
    """Whether nobody wrote its text, as that of a dataclass's methods."""
    return frame.f_code.co_filename == "<string>"


# ---------------------------------------------------------------- importing


def _import(module: str, what: str) -> ModuleType:
    current = os.getcwd()
    if not {"", current} & set(sys.path):
        sys.path.append(current)  # last: nothing that is installed gives way to it
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name and (module == e.name or module.startswith(e.name + ".")):
            raise CoveyError(
                f"{what}: there is no module '{e.name}' here; install the package that has it, "
                "or start covey in the folder where it lies"
            ) from e
        raise CoveyError(f"{what}: its module needs '{e.name}', which is not installed here") from e
    except CoveyError as e:
        raise CoveyError(f"{what}: importing '{module}' failed: {e}") from e
    except (Exception, SystemExit) as e:
        lines = str(e).strip().splitlines() or [""]
        raise CoveyError(f"{what}: importing '{module}' failed with {type(e).__name__}: {lines[0]}") from e


def _has_module(thing: Any, name: str) -> bool:
    """Whether a package has a module of this name, imported or not."""
    package = isinstance(thing, ModuleType) and hasattr(thing, "__path__")
    return package and _source(f"{thing.__name__}.{name}") is not None


def _script() -> str:
    """The running script as a module of the current folder; `__main__` where it is none."""
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    try:
        return _module_of(str(main.__file__), os.getcwd())
    except (AttributeError, OSError):
        return MAIN


@functools.cache  # every lookup of a name asks for it, and links are followed on the disk
def _module_of(file: str, folder: str) -> str:
    path = Path(file).resolve()
    parts = path.relative_to(folder).with_suffix("").parts if path.is_relative_to(folder) else ("",)
    return ".".join(parts) if all(part.isidentifier() for part in parts) else MAIN


def _loaded(path: str) -> Any:
    """What stands at a path, if its module is imported already."""
    module, _, attributes = path.partition(":")
    thing: Any = sys.modules.get(MAIN if module == _script() else module)
    for part in filter(None, attributes.split(".")):
        thing = getattr(thing, part, None)
    return thing


def _own_name(thing: Any) -> str | None:
    name = getattr(thing, "name", None)
    return name if isinstance(name, str) else None


def _called(thing: Any, module: str) -> str:
    return f"class {thing.__qualname__}" if isinstance(thing, type) else f"module '{module}'"


# ---------------------------------------------------------------- what covey brings


def _own_entries(package: str) -> Iterator[Entry]:
    """Of all modules in the package's folder, by path and line. Without sources (a zip, say) the modules are imported."""
    top = importlib.import_module(package)
    folder = Path(str(top.__file__)).parent
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else []
    if not files:
        yield from _imported_entries(top)
    for file in files:
        parts = file.relative_to(folder).with_suffix("").parts
        module = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
        for place, declared in _declarations(file):
            if isinstance(declared.get("name"), str) and isinstance(declared.get("title"), str):
                yield Entry(
                    declared["name"], f"{module}:{place}" if place else module, OURS, MappingProxyType(declared)
                )


def _imported_entries(top: ModuleType) -> Iterator[Entry]:
    for info in sorted(pkgutil.walk_packages(top.__path__, top.__name__ + "."), key=lambda info: info.name):
        module = importlib.import_module(info.name)
        if isinstance(vars(module).get("name"), str) and isinstance(vars(module).get("title"), str):
            yield Entry(module.name, info.name, OURS, vars(module))
        for place, thing in vars(module).items():
            facts = vars(thing) if hasattr(thing, "__dict__") else {}
            if isinstance(thing, ModuleType):  # imported there: it stands for itself where it is
                continue
            defined = getattr(thing, "__module__", info.name) == info.name or not isinstance(thing, type)
            if defined and isinstance(facts.get("name"), str) and isinstance(facts.get("title"), str):
                yield Entry(facts["name"], f"{info.name}:{place}", OURS, facts)


@functools.cache
def _declarations(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """(class or variable, "" for the module itself; what it says in literals) of a source, top level only."""
    try:
        text = file.read_text(encoding="utf-8")
        body = _body(text) if "title" in text else []
    except (OSError, ValueError, SyntaxError):
        return []
    declarations = [("", _literals(body))]
    for node in body:
        if isinstance(node, ast.ClassDef):
            declarations.append((node.name, _literals(node.body)))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                declarations.append((target.id, _keywords(node.value)))
    return declarations


def _body(text: str) -> list[ast.stmt]:
    """The statements of a source, functions apart: every process that asks for names waits for this, mostly for their bodies."""
    try:
        return ast.parse(_outline(text)).body
    except SyntaxError:  # of a text within a function that begins at the margin, say
        return ast.parse(text).body


def _outline(text: str) -> str:
    lines, inside, quoted = [], -1, False  # inside: how far the function or decorator that is left out is indented
    for line in text.splitlines():
        content = line.lstrip()
        indent = len(line) - len(content)
        if inside >= 0 and (indent > inside or content[:1] in ("", ")")):
            continue
        inside = indent if not quoted and content.startswith(("def ", "async def ", "@")) else -1
        if inside < 0:
            lines.append(line)
            quoted ^= line.count('"""') % 2 == 1
        elif content[0] != "@":
            lines.append(" " * indent + "pass")
    return "\n".join(lines)


def _literals(body: list[ast.stmt]) -> dict[str, Any]:
    literals: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            literals |= _assigned(node.target, node.value)
        elif isinstance(node, ast.Assign):
            literals |= _assigned(node.targets[0], node.value)
    return literals


def _keywords(call: ast.Call) -> dict[str, Any]:
    literals: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg:
            literals |= _assigned(ast.Name(keyword.arg), keyword.value)
    return literals


def _assigned(target: ast.expr, value: ast.expr) -> dict[str, Any]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts)
        return {name: literal for one, of in pairs for name, literal in _assigned(one, of).items()}
    if not isinstance(target, ast.Name):
        return {}
    try:
        return {target.id: ast.literal_eval(value)}
    except ValueError:
        return {}


# ---------------------------------------------------------------- what other packages bring


def _entry_points(group: str) -> list[Any]:
    return sorted(_all_entry_points().select(group=group), key=lambda point: (point.name, point.value))


@functools.cache
def _all_entry_points() -> Any:
    """Of all groups at once: each reading opens a file of every package that is installed."""
    from importlib import metadata  # some 20 ms, which no help text needs

    return metadata.entry_points()


def _entry(point: Any) -> Entry | str:
    """The entry of an entry point, or what is wrong with it. Nothing of its package is imported."""
    origin = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
    module, colon, attributes = str(point.value).partition(":")
    module, attributes = module.strip(), attributes.partition("[")[0].strip()
    wrong = f"'{point.name}' of {origin} ({point.value}) cannot be used"
    if not module or not all(part.isidentifier() for part in module.split(".")):
        return f"{wrong}: expected package.module:Class"
    file = _source(module)
    if file is None:
        return f"{wrong}: there is no module '{module}'"
    declared = dict(_declarations(file)).get(attributes, {}) if file.suffix == ".py" else {}
    return Entry(point.name, f"{module}:{attributes}" if colon else module, origin, MappingProxyType(declared))


def _source(module: str) -> Path | None:
    """The file of a module, found without running it or the packages above it."""
    path: Any = None
    file = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        spec = next((spec for finder in finders if (spec := finder.find_spec(name, path))), None)
        if spec is None:
            return None
        path, file = spec.submodule_search_locations, spec.origin
        if path is None and depth <= module.count("."):
            return None
    return Path(file or "namespace")
