"""What covey sees at a path, and what it will do with it: `covey data check PATH`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from covey import config
from covey.data.own.encoding import Feature, agreed_on, width
from covey.data.own.read import CLIENTS, Reading, read_path
from covey.data.own.rules import Rules
from covey.data.own.sheet import Column, Other, Sheet, Words, missing, spelt

MOST_LINES = 40  # columns that are listed


def inspect(path: str, rules: Rules) -> list[str]:
    """Lines for people; CoveyError where a run would refuse it."""
    reading = read_path(Path(path), rules)
    data = reading.dataset
    shape = "×".join(map(str, data.x_train.shape[1:]))
    lines = [
        f"{path}: {len(data.y_train):,} training and {len(data.y_test):,} test rows, {shape} numbers each ({data.kind})"
    ]
    if reading.sheet is not None:
        lines += ["columns", *(f"  {line}" for line in _columns(reading.sheet))]
    lines += [f"{_task(reading)}"]
    lines += _clients(reading)
    lines += [f"  {line}" for line in reading.said]
    lines += ["to run it", f"  {command(path, reading, rules)}"]
    if reading.features:
        lines += [
            "for silos that hold such tables themselves",
            *(f"  {line}" for line in silos(reading, rules).splitlines()),
        ]
    return lines


def _columns(sheet: Sheet) -> Iterator[str]:
    names = list(sheet.columns)
    room = max(map(len, names[:MOST_LINES]))
    for name in names[:MOST_LINES]:
        yield f"{name:<{room}}  {_kind(sheet.columns[name])}"
    if len(names) > MOST_LINES:
        yield f"… and {len(names) - MOST_LINES} more"


def _kind(column: Column) -> str:
    if isinstance(column, Other):
        return f"{column.what}: not read"
    gaps = int(missing(column).sum())
    lacking = f", {gaps:,} missing" if gaps else ""
    if isinstance(column, Words):
        used = column.used
        most = [column.names[i] for i in np.argsort(-used, kind="stable")[:4] if used[i]]
        more = ", …" if len(column.names) > 4 else ""
        return f"{int((used > 0).sum()):,} texts ({', '.join(word[:20] for word in most)}{more}){lacking}"
    known = column[~np.isnan(column)]
    if not len(known):
        return f"no values{lacking}"
    return f"numbers from {_short(known.min())} to {_short(known.max())}{lacking}"


def _short(value: float) -> str:
    return spelt(value) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def _task(reading: Reading) -> str:
    data = reading.dataset
    if data.task == "numbers":
        spread = f"{data.y_train.min():.4g} to {data.y_train.max():.4g}"
        return (
            f"to predict: numbers ({', '.join(data.classes[:8])}), from {spread}; large ones want a small training.lr"
        )
    if data.task == "labels":
        shares = ", ".join(f"{n} {100 * s:.0f} %" for n, s in zip(data.classes[:12], data.y_train.mean(0)))
        return f"to predict: {data.outputs} labels, each 0 or 1 ({shares})"
    counts = np.bincount(np.concatenate([data.y_train, data.y_test]), minlength=data.outputs)
    shares = ", ".join(f"{n} {100 * c / counts.sum():.0f} %" for n, c in zip(data.classes[:12], counts))
    return f"to predict: {data.outputs} classes ({shares}{', …' if data.outputs > 12 else ''})"


def _clients(reading: Reading) -> list[str]:
    data = reading.dataset
    if data.owners is None:
        lines = ["clients: the data name none; a partition cuts them"]
        candidates = [n for n, c in _likely_clients(reading)] if reading.sheet else []
        return lines + [
            f"  column '{n}' may say whose a row is: --set data.client={_quoted(n)}" for n in candidates[:3]
        ]
    sizes = np.bincount(data.owners, minlength=len(data.holders))
    names = ", ".join(f"{n} {s:,}" for n, s in zip(data.holders[:8], sizes))
    more = f", …; from {sizes.min():,} to {sizes.max():,}" if len(sizes) > 8 else ""
    return [f"clients: {len(sizes):,}, with training rows: {names}{more}"]


def _likely_clients(reading: Reading) -> Iterator[tuple[str, Column]]:
    assert reading.sheet is not None
    words = (*CLIENTS, "site", "hospital", "centre", "center", "clinic", "user", "dataset", "bank", "school", "author")
    for name, column in reading.sheet.columns.items():
        if any(word in name.lower() for word in words) and not isinstance(column, Other):
            yield name, column


def command(path: str, reading: Reading, rules: Rules) -> str:
    """A command that runs it."""
    clients = len(reading.dataset.holders)
    settings = [f"data.{k}={v if _bare(v) else _toml(v)}" for k, v in _changed(rules).items()]
    if not clients:
        settings += ["partition=iid", "clients=10"]
    elif clients < 4:
        settings += ["algorithm=fedavg", "clusters=1"]
    return " ".join(["covey run", _quoted(path), *(f"--set {_quoted(t)}" for t in settings)])


def _bare(value: object) -> bool:
    """Whether --set takes a text without quotes for the text."""
    return isinstance(value, str) and value.replace("_", "a").isalpha() and value not in ("true", "false", "inf", "nan")


def silos(reading: Reading, rules: Rules) -> str:
    """The tables [data] and [silos] of a federation whose members hold such tables; no statistics of these data are in it."""
    features = agreed_on(reading.features, own_statistics=True)
    columns = ",\n  ".join(_inline(feature) for feature in features)
    data = reading.dataset
    label = rules.label or next(line.split("'")[1] for line in reading.said if "is the label" in line)
    lines = [
        'dataset = "silos"',
        "[data]",
        f"label = {_toml(label)}",
        *([f"test = {_toml(rules.test)}"] if isinstance(_changed(rules).get("test"), float) else []),
        "[silos]",
        'kind = "real"',
        f"shape = [{width(features)}]",
        f"classes = {_toml(list(data.classes))}",
        *([f'task = "{data.task}"'] if data.task != "classes" else []),
        f"columns = [\n  {columns},\n]",
    ]
    return "\n".join(lines)


def _inline(feature: Feature) -> str:
    entry = {"name": feature.name}
    more = [f"values = {_toml(list(feature.values))}"] * bool(feature.values) + ["missing = true"] * feature.missing
    return "{ " + ", ".join([*(f"{k} = {_toml(v)}" for k, v in entry.items()), *more]) + " }"


def _changed(rules: Rules) -> dict[str, object]:
    usual = config.to_table(Rules())
    return {k: v for k, v in config.to_table(rules).items() if v != usual[k] and k != "fingerprint"}


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
