"""A whole federation's data as a dataset: from a path, a sheet or arrays, by the rules, with all that was guessed said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.checks import check_dataset
from covey.data.dataset import Dataset
from covey.data.own.arrays import Arrays, is_mapped, read_mapped, read_npz_parts
from covey.data.own.encoding import Feature, encode, fit
from covey.data.own.images import read_pictures
from covey.data.own.limits import explained
from covey.data.own.places import Part, parts_at
from covey.data.own.rows import (
    Owners,
    Targets,
    held_back,
    large_enough,
    owners_of,
    targets_of_array,
    targets_of_columns,
    test_column,
    without_gaps,
)
from covey.data.own.rules import Rules
from covey.data.own.sheet import Numbers, Other, Sheet, Words, joined, missing
from covey.data.own.tables import is_table, read_table
from covey.data.sources.load import freeze
from covey.errors import CoveyError, nearest

LABELS, CLIENTS, TESTS = ("label", "target", "class", "y"), ("client", "silo"), ("split", "is_test")
NUMBERED = ("", "id", "index", "unnamed: 0")  # names of columns that only number the rows
LARGE = 100.0  # in samples of arrays, which nothing scales
MOST_NAMES = 60  # columns that a sentence lists
NOBODYS = "none"  # data.client: there are no clients, whatever the columns are called
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """A dataset, and how it came about."""

    dataset: Dataset
    said: tuple[str, ...]  # a line for everything that was guessed or done
    features: tuple[Feature, ...] = ()  # of a table
    sheet: Sheet | None = None


# ---------------------------------------------------------------- a path


def read_path(path: Path, rules: Rules) -> Reading:
    """What lies at a path, read once per process and version of the files."""
    place = Path(path).expanduser()
    parts = parts_at(place)
    return _read(place, parts, rules, tuple(_stamp(part.path) for part in parts))


@lru_cache(maxsize=4)
def _read(place: Path, parts: tuple[Part, ...], rules: Rules, stamps: tuple[Any, ...]) -> Reading:
    """`stamps` only tell versions of the files apart."""
    with explained(place):
        return _reading(place, parts, rules)


def _reading(place: Path, parts: tuple[Part, ...], rules: Rules) -> Reading:
    name = _name(place)
    tables = [part for part in parts if is_table(part.path)]
    if tables and len(tables) < len(parts):
        other = next(part for part in parts if part not in tables)
        raise CoveyError(f"{tables[0].path} is a table and {other.path} is not: give all parts in one form")
    if tables:
        sheets = [read_table(part.path) for part in parts]
        sizes = [sheet.rows for sheet in sheets]
        return of_sheet(joined(sheets), rules, name, _owners(parts, sizes), _tests(parts, sizes))
    if is_mapped(parts[0].path):
        return of_mapped(*read_mapped(parts[0].path), rules, name)
    pieces = [(part, piece, test) for part in parts for piece, test in _arrays(part)]
    flat = [Part(part.path, part.client, test) for part, _, test in pieces]
    sizes = [len(piece.y) for _, piece, _ in pieces]
    together = _together([piece for _, piece, _ in pieces])
    return of_arrays(together, rules, name, _owners(flat, sizes), _tests(flat, sizes))


def _arrays(part: Part) -> list[tuple[Arrays, bool]]:
    if part.path.is_dir():
        return [(read_pictures(part.path), part.test)]
    both = read_npz_parts(part.path)
    return [(arrays, part.test or i == 1) for i, arrays in enumerate(both)]


def _together(pieces: Sequence[Arrays]) -> Arrays:
    for piece in pieces[1:]:
        if piece.x.shape[1:] != pieces[0].x.shape[1:]:
            raise CoveyError(
                f"{piece.place} holds samples of shape {list(piece.x.shape[1:])}, {pieces[0].place} of "
                f"{list(pieces[0].x.shape[1:])}: make them alike"
            )
        if piece.y.shape[1:] != pieces[0].y.shape[1:] or (piece.y.dtype.kind in "US") != (
            pieces[0].y.dtype.kind in "US"
        ):
            raise CoveyError(
                f"{piece.place} and {pieces[0].place} have labels of different kinds: use names or numbers in all"
            )
    if len({piece.clients is None for piece in pieces}) > 1:
        lacking = next(piece for piece in pieces if piece.clients is None)
        raise CoveyError(f"{lacking.place} has no array client, other parts have one: add it")
    clients = [piece.clients for piece in pieces if piece.clients is not None]
    return Arrays(
        pieces[0].place if len(pieces) == 1 else f"{pieces[0].place} and others",
        np.concatenate([piece.x for piece in pieces]) if len(pieces) > 1 else pieces[0].x,
        np.concatenate([piece.y for piece in pieces]) if len(pieces) > 1 else pieces[0].y,
        np.concatenate(clients) if clients else None,
    )


def _owners(parts: Sequence[Part], sizes: Sequence[int]) -> Owners | None:
    """Whose rows are, where folders or files say it."""
    if not any(part.client for part in parts):
        return None
    names = tuple(dict.fromkeys(part.client for part in parts))
    empty = next((part for part, size in zip(parts, sizes) if not size), None)
    if empty is not None:
        raise CoveyError(f"{empty.path} is empty: client '{empty.client}' needs rows, or leave it out")
    return Owners(np.repeat([names.index(part.client) for part in parts], sizes).astype(np.int64), names)


def _tests(parts: Sequence[Part], sizes: Sequence[int]) -> Mask | None:
    return np.repeat([part.test for part in parts], sizes) if any(part.test for part in parts) else None


def _name(place: Path) -> str:
    return place.resolve().name.split(".")[0] or "own data"


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)


# ---------------------------------------------------------------- a table


def of_sheet(sheet: Sheet, rules: Rules, name: str, owners: Owners | None = None, test: Mask | None = None) -> Reading:
    """`owners`, `test`: where the place of the rows says it, instead of a column."""
    if not sheet.rows:
        raise CoveyError(f"{sheet.place} has no rows: put at least one under its first line")
    said: list[str] = []
    _refuse_unknown(sheet, rules)
    labels = rules.labels or (_guess(sheet, LABELS, "label", said),)
    if not labels[0]:
        names, more = list(sheet.columns), len(sheet.columns) - MOST_NAMES
        known = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        raise CoveyError(
            f"{sheet.place} has no column called label, target, class or y: say data.label = one of {known} (`--set data.label=…`)"
        )
    targets = targets_of_columns({label: _usable(sheet, label) for label in labels}, rules.task, sheet.at, sheet.place)
    if not rules.task:
        many = f", {len(targets.classes)} of them" if targets.task == "classes" else ""
        said.append(
            f"guessed: {', '.join(labels)} is to be predicted as {targets.task}{many} (data.task says otherwise)"
        )
    client = (
        "" if owners is not None or rules.client == NOBODYS else rules.client or _guess(sheet, CLIENTS, "client", said)
    )
    if client:
        owners = owners_of(_usable(sheet, client), sheet.at, client)
    marked = (
        "" if test is not None else rules.test if isinstance(rules.test, str) else _guess(sheet, TESTS, "test", said)
    )
    if marked:
        test = test_column(_usable(sheet, marked), sheet.at, marked)
    kept, test = _split(targets, owners, test, rules)
    columns = [c for c in sheet.columns if c not in (*labels, client, marked, *rules.drop)]
    numbered = [c for c in columns if c not in rules.categories and _numbers_rows(c, sheet)]
    if numbered:
        said.append(f"left out: {', '.join(repr(c) for c in numbered)}, which only numbers the rows")
    columns = [c for c in columns if c not in numbered]
    if not columns:
        raise CoveyError(
            f"{sheet.place} has no column beside the label{' and the client' if client else ''}: add features"
        )
    features = fit(sheet, columns, rules, kept & ~test)
    x = encode(sheet, features, kept & ~test, owners.codes if owners else None)
    said += _how(sheet, features, rules)
    dataset = replace(_dataset(name, x, targets, owners, kept, test, "real", said), columns=features)
    return Reading(dataset, tuple(said), features, sheet)


def _refuse_unknown(sheet: Sheet, rules: Rules) -> None:
    test = (rules.test,) if isinstance(rules.test, str) else ()
    client = (rules.client,) if rules.client not in ("", NOBODYS) else ()
    chosen = {"label": rules.labels, "client": client, "test": test, "drop": rules.drop, "categories": rules.categories}
    for key, names in chosen.items():
        for name in names:
            if name not in sheet.columns:
                raise CoveyError(
                    f"{sheet.place} has no column '{name}' (data.{key}){nearest(name, list(sheet.columns))}"
                )
    roles = [*rules.labels, *client, *test, *rules.drop]
    if len(set(roles)) < len(roles):
        raise CoveyError(
            f"{sheet.place}: column '{max(roles, key=roles.count)}' is named twice in data.label, client, test and drop: once only"
        )


def _guess(sheet: Sheet, names: tuple[str, ...], what: str, said: list[str]) -> str:
    there = [c for c in sheet.columns if c.lower() in names]
    if len(there) > 1:
        raise CoveyError(f"{sheet.place} has the columns {' and '.join(there)}: say which is meant with data.{what}")
    if there:
        said.append(f"guessed: column '{there[0]}' is the {what} (data.{what} says otherwise)")
    return there[0] if there else ""


def _usable(sheet: Sheet, name: str) -> Numbers | Words:
    column = sheet.columns[name]
    if isinstance(column, Other):
        raise CoveyError(f"{sheet.place}: column '{name}' holds {column.what}: turn it into numbers or texts")
    return column


def _numbers_rows(name: str, sheet: Sheet) -> bool:
    column = sheet.columns[name]
    if not isinstance(column, np.ndarray) or not (name.lower() in NUMBERED or name.lower().endswith("_id")):
        return False
    whole = not np.isnan(column).any() and bool((column == np.rint(column)).all())
    return whole and len(np.unique(column)) == len(column)


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _how(sheet: Sheet, features: tuple[Feature, ...], rules: Rules) -> list[str]:
    """What happened to the values, for people."""
    categories = [f for f in features if f.values]
    numbers = [f for f in features if not f.values]
    lines = []
    if numbers:
        how = {
            "all": "less mean, by deviation, of all training rows: a real federation would have to share these, or agree on some",
            "clients": "less mean, by deviation, of each client's own training rows: nothing is shared",
            "none": "as they are",
        }[rules.standardise]
        lines.append(f"{_columns(len(numbers))} of numbers, {how}")
    if categories:
        lines.append(
            f"{_columns(len(categories))} of categories, one-hot: {sum(len(f.values) for f in categories)} values"
        )
    gaps = sum(int(missing(sheet.columns[f.name]).sum()) for f in features)
    if gaps:
        marked = sum(f.missing for f in features)
        where = "one further column says where" if marked == 1 else f"{marked} further columns say where"
        rule = f"and {where}" if rules.missing == "indicator" else "and nothing says where"
        lines.append(f"{gaps} missing values: numbers are the mean, texts none of the values, {rule}")
    return lines


# ---------------------------------------------------------------- arrays


def of_arrays(
    arrays: Arrays,
    rules: Rules,
    name: str,
    owners: Owners | None = None,
    test: Mask | None = None,
    classes: Sequence[str] = (),
) -> Reading:
    """Arrays are taken as they are, but for their type."""
    said: list[str] = []
    x, kind = typed(arrays.x, rules.kind, arrays.place, said)
    targets = targets_of_array(arrays.y, rules.task, classes, arrays.place)
    if targets.task == "labels" and not rules.task and len(targets.classes) > 1 and (targets.y.sum(1) == 1).all():
        said.append("guessed: several labels at once; if each row has one class, give its number: y.argmax(1)")
    if arrays.clients is not None:
        owners = owners_of_array(arrays.clients, len(x), arrays.place)
    if isinstance(rules.test, str):
        raise CoveyError(f"data.test is '{rules.test}', a column: {arrays.place} has none, give a share or a test part")
    kept, test = _split(targets, owners, test, rules)
    return Reading(_dataset(name, x, targets, owners, kept, test, kind, said), tuple(said))


def of_mapped(train: Arrays, test: Arrays, rules: Rules, name: str, classes: Sequence[str] = ()) -> Reading:
    """Two parts that are not put together, so that a mapped array stays on the disk."""
    said: list[str] = []
    x, kind = typed(train.x, rules.kind, train.place, said)
    x_test, _ = typed(test.x, rules.kind or kind, test.place, [])
    _together([Arrays(train.place, x[:1], train.y[:1]), Arrays(test.place, x_test[:1], test.y[:1])])
    both = targets_of_array(np.concatenate([train.y, test.y]), rules.task, classes, train.place)
    m = len(train.y)
    owners = None
    if train.clients is not None:
        everyone = train.clients if test.clients is None else np.concatenate([train.clients, test.clients])
        owners = owners_of_array(everyone, m + (0 if test.clients is None else len(test.y)), train.place)
        if test.clients is not None:
            large_enough(owners, Rules(), np.arange(len(everyone)) >= m)
    dataset = Dataset(
        name,
        x.view(),  # which is made read-only, and not the caller's own array
        both.y[:m],
        x_test.view(),
        both.y[m:],
        both.classes,
        kind,
        note="; ".join(said),
        task=both.task,
        owners=owners.codes[:m] if owners else None,
        test_owners=owners.codes[m:] if owners and test.clients is not None else None,
        holders=owners.names if owners else (),
    )
    return Reading(_frozen(check_dataset(dataset)), tuple(said))


def typed(x: NDArray[Any], kind: str, place: str, said: list[str]) -> tuple[NDArray[Any], str]:
    """Samples in the type that their kind is kept in, and the kind."""
    if x.dtype.kind not in "fiub":
        raise CoveyError(
            f"{place} holds samples of {x.dtype}, expected numbers: encode texts first, or give a table (Federation.from_frame)"
        )
    if not kind:
        if x.dtype.kind == "b" or (x.dtype == np.uint8 and x.size and x.max() <= 1):
            kind = "binary"
        else:
            kind = "image" if x.dtype == np.uint8 and x.ndim in (3, 4) else "real"
        said.append(
            f"guessed: samples of {x.dtype} and shape {list(x.shape[1:])} are of kind '{kind}' (data.kind says otherwise)"
        )
    if isinstance(x, np.memmap) or kind == "image":
        return x, kind
    wanted = {"binary": np.uint8, "tokens": np.int32}.get(kind, np.float32)
    if kind in ("binary", "tokens") and x.dtype.kind == "f" and not (np.isfinite(x).all() and (x == np.rint(x)).all()):
        raise CoveyError(f"{place} holds samples with fractions, kind '{kind}' is of whole numbers: give kind 'real'")
    if kind == "binary" and x.size and (x.min() < 0 or x.max() > 1):
        raise CoveyError(
            f"{place} holds samples from {x.min()} to {x.max()}, kind 'binary' is 0 or 1: give kind 'real'"
        )
    if kind == "real" and x.size and (largest := max(float(x.max()), -float(x.min()))) > LARGE:
        said.append(
            f"samples reach {largest:,.6g} and are taken as they are: most models learn little from such numbers, so scale them "
            "before (pixels by their largest value, columns less mean and by deviation)"
        )
    return x.astype(wanted, copy=False), kind


def owners_of_array(clients: NDArray[Any], rows: int, place: str) -> Owners:
    """Of names or numbers, one per row."""
    if clients.shape != (rows,):
        raise CoveyError(
            f"{place} has {rows} rows and clients of shape {list(clients.shape)}: say whose each row is, once"
        )
    if clients.dtype.kind == "O":
        wrong = [i for i, v in enumerate(clients) if not isinstance(v, str | int | np.integer)]
        if wrong:
            raise CoveyError(
                f"{place}, row {wrong[0]}: the client is {clients[wrong[0]]!r}, expected a name or a number: correct it"
            )
        clients = clients.astype(str)
    if clients.dtype.kind == "f":
        wrong_rows = np.flatnonzero(~np.isfinite(clients) | (clients != np.rint(clients)))
        if len(wrong_rows):
            raise CoveyError(
                f"{place}, row {wrong_rows[0]}: the client is {clients[wrong_rows[0]]}, expected a name or whole number: correct it"
            )
        clients = clients.astype(np.int64)
    values, codes = np.unique(clients, return_inverse=True)
    return Owners(codes.astype(np.int64), tuple(str(v) for v in values))


# ---------------------------------------------------------------- together


def _split(targets: Targets, owners: Owners | None, test: Mask | None, rules: Rules) -> tuple[Mask, Mask]:
    """(rows that are kept, rows for testing)."""
    if test is not None and (test.all() or not test.any()):
        raise CoveyError(
            f"{'all' if test.all() else 'none'} of the {len(test)} rows are for testing: mark some, not all"
        )
    if owners is None:
        kept = np.ones(len(targets.y), np.bool_)
        if test is None and len(kept) < 2:
            raise CoveyError("there is 1 row: at least one to train on and one to test on are needed, give more")
        return kept, held_back(_share(rules), targets, None) if test is None else test
    kept = large_enough(owners, rules, test)
    if test is not None:
        return kept, test
    rest = without_gaps(Owners(owners.codes[kept], owners.names))
    part = Targets(targets.y[kept], targets.classes, targets.task)
    mask = np.zeros(len(kept), np.bool_)
    mask[kept] = held_back(_share(rules), part, rest)
    return kept, mask


def _share(rules: Rules) -> float:
    return rules.test if isinstance(rules.test, float) else Rules().test  # type: ignore[return-value]


def _dataset(
    name: str,
    x: NDArray[Any],
    targets: Targets,
    owners: Owners | None,
    kept: Mask,
    test: Mask,
    kind: str,
    said: list[str],
) -> Dataset:
    train = kept & ~test
    test = kept & test
    codes, names = None, tuple[str, ...]()
    if owners is not None:
        left = len(owners.names)
        used = np.unique(owners.codes[kept])
        number = np.full(left, -1)
        number[used] = np.arange(len(used))
        codes, names = number[owners.codes], tuple(owners.names[i] for i in used)
        if len(used) < left:
            said.append(f"left out: {left - len(used)} of {left} clients, which have too few rows (data.min_rows)")
    dataset = Dataset(
        name,
        x[train],
        targets.y[train],
        x[test],
        targets.y[test],
        targets.classes,
        kind,
        note="; ".join(said),
        task=targets.task,
        owners=None if codes is None else codes[train],
        test_owners=None if codes is None else codes[test],
        holders=names,
    )
    return _frozen(check_dataset(dataset))


def _frozen(dataset: Dataset) -> Dataset:
    for owners in (dataset.owners, dataset.test_owners):
        if owners is not None:
            owners.flags.writeable = False
    return freeze(dataset)
