"""What the runs of a folder say of themselves, kept up to date: a file is read again only when it has changed."""

from __future__ import annotations

import json
import stat
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from covey.errors import CoveyError
from covey.files import number
from covey.report.findings import chip_of, name_of, read_findings
from covey.report.format import counted, duration, percent, sentence_case, size
from covey.report.labels import label
from covey.report.status import progress
from covey.results.contents import Run, dig, evenly, fields
from covey.results.declared import declared
from covey.results.folder import REPORT, RunFolder
from covey.results.follow import Tail, glance, leading
from covey.results.status import STATUS, of_json
from covey.ui.operation import PAGE as OPERATION
from covey.ui.scan import OF_A_RUN, Place, places

T = TypeVar("T")
POINTS = 40  # of a curve in the list
PATIENCE = 600.0  # seconds that a run may take before its first round and after its last until it counts as stopped …
QUIET = 30.0  # … and between two rounds, where rounds are short


@dataclass(frozen=True)
class Entry:
    """One line of the list, as the page's script reads it."""

    kind: str  # run, audit, table, party
    path: str  # relative to the folder; "" is the folder itself
    page: str  # address of its report, relative to the list; "" while there is nothing to report
    title: str
    facts: str
    status: str  # starting, running, finished, stopped
    changed: float  # when it last changed, seconds since 1970
    done: int = 0
    total: int = 0
    accuracy: str = ""
    curve: tuple[float, ...] = ()
    left: str = ""
    verdict: str = ""
    verdict_kind: str = ""  # leak, none, open
    cost: str = ""
    operation: str = ""  # address of its parties' page, of a deployed run


class Index:
    """The entries of one folder. Safe to ask from several threads."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root.resolve()
        self._clock, self._lock = clock, threading.Lock()
        self._read: dict[Path, tuple[tuple[float, int], Any]] = {}
        self._tails: dict[Path, Tail] = {}
        self._met: dict[Path, tuple[float, int]] = {}  # when and where a run was first seen under way
        self._closed: dict[Path, tuple[object, Entry]] = {}  # finished runs, while their files stay the same

    def entries(self) -> list[Entry]:
        """What there is now; runs under way first, then the latest."""
        make = {"run": self._run, "audit": self._audit, "table": self._table, "party": self._party}
        with self._lock:
            entries = [entry for place in places(self.root) if (entry := make[place.kind](place)) is not None]
        return sorted(entries, key=lambda e: (e.status not in ("running", "starting"), -e.changed, e.path))

    def json(self) -> dict[str, Any]:
        return {"folder": self.root.name, "entries": [asdict(entry) for entry in self.entries()]}

    def _run(self, place: Place) -> Entry:
        stamps = [_stamp(place.folder / name) for name in sorted(OF_A_RUN)]
        known = self._closed.get(place.folder)
        if known is None or known[0] != stamps:
            known = (stamps, self._read_run(place))
            if known[1].status == "finished":
                self._closed[place.folder] = known
        return known[1]

    def _read_run(self, place: Place) -> Entry:
        folder = RunFolder(place.folder)
        config = fields(self._parsed(folder.config, tomllib.loads))
        result = fields(self._parsed(folder.result, json.loads))
        run = Run(place.folder.name, result, (), {}, config, "")
        rounds, seeds = number(dig(config, "training", "rounds")) or 0, number(config.get("seeds")) or 1
        worst = next(iter(read_findings(run)), None)
        common: dict[str, Any] = {
            "kind": "run",
            "path": self._path(place.folder),
            "title": _title(run),
            "facts": _facts(run),
            "total": int(rounds * (seeds if place.parts else 1)),
            "verdict": f"{name_of(worst)}: {worst.verdict}" if worst else "",
            "verdict_kind": chip_of(worst) if worst else "",
            "cost": _cost(run),
            "operation": _address(self._path(place.folder), OPERATION) if _stamp(place.folder / STATUS)[1] else "",
        }
        return self._finished(run, folder, common) if result else self._under_way(place, common)

    def _finished(self, run: Run, folder: RunFolder, common: dict[str, Any]) -> Entry:
        score = leading(run.result)
        seeds = int(number(dig(run.result, "seeds", "n")) or 1)
        return Entry(
            **common,
            page=_address(common["path"], REPORT),
            status="finished",
            changed=_stamp(folder.result)[0],
            done=int(number(run.result.get("rounds")) or 0) * seeds,
            accuracy="" if score is None else percent(score),
            curve=_rounded(glance(folder.metrics, POINTS)),
        )

    def _under_way(self, place: Place, common: dict[str, Any]) -> Entry:
        """A run without a result: somebody works on it, or did."""
        tails = {part: self._tail(RunFolder(part).metrics) for part in place.parts or (place.folder,)}
        where, last = max(tails.items(), key=lambda item: item[1].changed)
        done, total = sum(tail.rounds for tail in tails.values()), common["total"]
        changed = max(last.changed, _stamp(RunFolder(place.folder).config)[0])
        pace, quiet = self._pace(place.folder, changed, done, last), self._clock() - changed
        status = _status(done, total, quiet, pace)
        left = round(max(1.0, pace * (total - done) - quiet))
        return Entry(
            **common,
            page=_address(self._path(where), REPORT) if last.rounds else "",
            status=status,
            changed=changed,
            done=done,
            accuracy=percent(last.curve[-1]) if last.curve else "",
            curve=_rounded([last.curve[i] for i in evenly(len(last.curve), POINTS)]),
            left=duration(left).replace(".0", "") if status == "running" and pace and total > done else "",
        )

    def _pace(self, folder: Path, changed: float, done: int, tail: Tail) -> float:
        """Seconds per round: as watched since this run was first seen, until then as it recorded them itself."""
        since, before = self._met.get(folder, (changed, done))
        if before and done > before:
            return (changed - since) / (done - before)
        if done != before or folder not in self._met:  # the first round, or begun anew: preparing does not count
            self._met[folder] = (changed, done)
        return sum(tail.seconds) / len(tail.seconds) if tail.seconds else 0.0

    def _audit(self, place: Place) -> Entry | None:
        audits = fields(self._parsed(place.folder / "audit.json", json.loads)).get("audits")
        if not isinstance(audits, list) or not audits or not isinstance(audits[0], dict):
            return None
        names = list(dict.fromkeys(label("algorithm", a.get("algorithm")) for a in audits if isinstance(a, dict)))
        what = names[0] if len(names) == 1 else counted(len(names), "algorithm")
        combinations = counted(len(audits), "combination")
        return self._document(
            place,
            "audit.json",
            "audit",
            f"{what} on {label('dataset', audits[0].get('dataset'))}",
            combinations,
            "audit.html",
        )

    def _table(self, place: Place) -> Entry | None:
        content = fields(self._parsed(place.folder / f"{place.name}.json", json.loads))
        if not {"paper", "table", "title", "cells"} <= set(content):
            return None
        facts = f"{content['paper']} {content['table']} · {counted(len(content.get('claims') or []), 'claim')}"
        title = sentence_case(content["title"])
        return self._document(place, f"{place.name}.json", "table", title, facts, f"{place.name}.html")

    def _party(self, place: Place) -> Entry | None:
        content = self._parsed(place.folder / STATUS, json.loads)
        try:
            status = of_json(content)
        except CoveyError:
            return None
        title = sentence_case(f"{status.kind} {status.party}")
        return self._document(place, STATUS, "party", title, progress(status, self._clock()), OPERATION)

    def _document(self, place: Place, file: str, kind: str, title: str, facts: str, page: str) -> Entry:
        path = self._path(place.folder)
        changed = _stamp(place.folder / file)[0]
        where = "/".join(filter(None, [path, file]))
        return Entry(kind, where, _address(path, page), title, facts, "finished", changed)

    def _path(self, folder: Path) -> str:
        return "" if folder == self.root else folder.relative_to(self.root).as_posix()

    def _parsed(self, path: Path, parse: Callable[[str], T]) -> T | None:
        """A file's content, from memory while the file is the same; None where there is none to read."""
        stamp = _stamp(path)
        if path not in self._read or self._read[path][0] != stamp:
            try:
                content = parse(path.read_text("utf-8")) if stamp[1] else None
            except (OSError, ValueError):  # being replaced, or damaged: the report says what is wrong
                content = None
            self._read[path] = (stamp, content)
        parsed: T | None = self._read[path][1]
        return parsed

    def _tail(self, path: Path) -> Tail:
        tail = self._tails.setdefault(path, Tail(path))
        tail.update()
        return tail


def _stamp(path: Path) -> tuple[float, int]:
    """(time of the last change, bytes); zeros where there is no such file, or a link, which may lead out of the folder."""
    try:
        state = path.lstat()
    except OSError:
        return 0.0, 0
    return (state.st_mtime, state.st_size) if stat.S_ISREG(state.st_mode) else (0.0, 0)


def _rounded(curve: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in curve)


def _status(done: int, total: int, quiet: float, pace: float) -> str:
    """Of a run without a result."""
    if not done:
        return "starting" if quiet < PATIENCE else "stopped"
    if done >= total:  # attacks are being scored
        return "running" if quiet < PATIENCE else "stopped"
    return "running" if quiet < max(QUIET, 8 * pace) else "stopped"


def _address(path: str, page: str) -> str:
    return quote("/".join(filter(None, ["at", path, page])))


def _title(run: Run) -> str:
    data = run.word("dataset")
    return (declared(run).label or "Run") + (f" on {label('dataset', data)}" if data else "")


def _facts(run: Run) -> str:
    clients, clusters = number(run.config.get("clients")), number(run.config.get("clusters"))
    seeds, seed = number(run.config.get("seeds")) or 1, number(run.config.get("seed"))
    said = [
        counted(int(clients), "client") if clients else "",
        counted(int(clusters), "cluster") if clusters else "",
        *(label(key, word) for key in ("encryption", "defence") if (word := run.word(key))),
        f"{int(seeds)} seeds" if seeds > 1 else f"seed {int(seed)}" if seed is not None else "",
        "stand-in data" if run.result.get("stand_in") else "",
    ]
    return " · ".join(filter(None, said))


def _cost(run: Run) -> str:
    up, down = (number(dig(run.result, "bytes", way)) for way in ("up", "down"))
    seconds = sum(s for v in fields(run.result.get("seconds")).values() if (s := number(v)) is not None)
    traffic = f"{size((up or 0) + (down or 0))} per client and round" if up or down else ""
    return ", ".join(filter(None, [duration(seconds) if seconds else "", traffic]))
