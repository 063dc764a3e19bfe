"""What a run folder says, read with patience: an interrupted run may lack any file, end mid-line, or hold nothing for a field."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.files import number

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What a folder says about one run. `rounds` is metrics.jsonl in order of rounds, one entry per round."""

    name: str
    result: Json
    rounds: tuple[Json, ...]
    federation: Json
    config: Json
    config_text: str
    problems: tuple[str, ...] = ()

    def series(self, *keys: str) -> list[float | None]:
        """One scalar over the rounds, None where a round has none: `run.series("accuracy", "global")`."""
        return [number(dig(entry, *keys)) for entry in self.rounds]

    def latest(self, *keys: str) -> Any:
        """The last value that any round recorded under `keys`, or None."""
        return next((value for entry in reversed(self.rounds) if (value := dig(entry, *keys)) is not None), None)

    def final(self, *keys: str) -> Any:
        """What result.json says, and where it says nothing (an interrupted run) what the last round said."""
        value = dig(self.result, *keys)
        return self.latest(*keys) if value is None else value

    @property
    def planned_rounds(self) -> int | None:
        planned = number(dig(self.config, "training", "rounds"))
        return int(planned) if planned is not None else None

    @property
    def done_rounds(self) -> int:
        recorded = number(self.result.get("rounds"))
        return int(recorded) if recorded is not None else (self.rounds[-1]["round"] if self.rounds else 0)

    @property
    def clients(self) -> int | None:
        """How many clients the federation has, from the file that knows it best."""
        if (every := number(self.federation.get("clients"))) is not None:  # of whom a sample is listed
            return int(every)
        for per_client in (self.federation.get("histogram"), self.federation.get("sizes"), self.latest("clusters")):
            if isinstance(per_client, list) and per_client:
                return len(per_client)
        stated = number(self.config.get("clients"))
        return int(stated) if stated is not None else None

    def client(self, place: int) -> int:
        """The number of the client that lists have at this place: of very many clients they have a sample."""
        of = self.federation.get("listed")
        return int(of[place]) if isinstance(of, list) and place < len(of) else place

    @property
    def true_clusters(self) -> list[int] | None:
        return integers(self.federation.get("clusters"))

    def word(self, key: str, *config_keys: str) -> str | None:
        """A name such as the algorithm's: from result.json, else from the configuration; either may nest it under `name`."""
        for stated in (self.result.get(key), dig(self.config, *(config_keys or (key,)))):
            name = stated.get("name") if isinstance(stated, dict) else stated
            if name not in (None, "", "none", False) and not isinstance(name, list | dict):
                return str(name)
        return None


def evenly(count: int, limit: int) -> list[int]:
    """Indices of at most `limit` items, evenly spread, first and last included."""
    if count <= limit:
        return list(range(count))
    return sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})


def dig(tree: Any, *keys: str) -> Any:
    """`tree[a][b]…`, or None as soon as a step is missing or not a table."""
    for key in keys:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def fields(value: Any) -> Json:
    """The value where it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def numbers(value: Any) -> list[float] | None:
    """A non-empty list of finite numbers, or None."""
    if not isinstance(value, list) or not value:
        return None
    read = [number(item) for item in value]
    return None if None in read else [item for item in read if item is not None]


def integers(value: Any) -> list[int] | None:
    read = numbers(value)
    return None if read is None else [int(item) for item in read]


def table(value: Any) -> list[list[float]] | None:
    """A non-empty rectangular list of lists of numbers, or None."""
    if not isinstance(value, list):
        return None
    rows = [row for item in value if (row := numbers(item)) is not None]
    whole = bool(rows) and len(rows) == len(value) and len({len(row) for row in rows}) == 1
    return rows if whole else None


def read_json(path: Path, problems: list[str]) -> Json:
    """A table, empty where there is none to read; what is wrong with the file is added to `problems`."""
    written = read_text(path, problems)
    if not written:
        return {}
    try:
        content = json.loads(written)
    except ValueError:
        problems.append(f"{path.name} is not complete JSON and was left out.")
        return {}
    return fields(content)


def read_toml(path: Path, problems: list[str]) -> tuple[str, Json]:
    """The text, and what it says."""
    written = read_text(path, problems)
    try:
        return written, tomllib.loads(written)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problems.append(f"{path.name} could not be read ({error}).")
        return written, {}


def read_text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path.name} could not be read ({error.__class__.__name__}).")
        return ""


def read_rounds(path: Path, problems: list[str]) -> tuple[Json, ...]:
    entries: dict[int, Json] = {}
    broken = 0
    for line in read_text(path, problems).splitlines():
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        round_number = number(dig(entry, "round"))
        if round_number is None:
            broken += 1
        else:
            # A resumed run writes the rounds after its checkpoint again: the later line is the one that counts.
            entries[int(round_number)] = {**entry, "round": int(round_number)}
    if broken:
        problems.append(f"metrics.jsonl has {broken} incomplete line{'' if broken == 1 else 's'}, left out.")
    return tuple(entries[t] for t in sorted(entries))
