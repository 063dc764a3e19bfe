"""The folder of a run: its files, its name, and how far the run in it has come.

    config.toml       the experiment, as `covey resume` reads it        metrics.jsonl   a line per round
    federation.json   who holds what                                    result.json     there once the run is finished
    checkpoint/       from which an interrupted run goes on             report.html     to look at
    models.bin        what clients predict with, at the end
    seed-N/           a run of several seeds has a folder for each

Nothing else in covey spells these names or decides whether a run is finished. Running is not done here: see `rounds.complete`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey import config, files
from covey.data.fingerprint import difference
from covey.errors import CoveyError, Damaged, Unavailable
from covey.experiment.experiment import Experiment
from covey.results.contents import Json, Run, read_json, read_rounds, read_toml
from covey.results.models import Models
from covey.results.status import STATUS
from covey.version import __version__

if TYPE_CHECKING:
    from covey.messages import Keep

CONFIG, METRICS, RESULT, FEDERATION, REPORT = (
    "config.toml",
    "metrics.jsonl",
    "result.json",
    "federation.json",
    "report.html",
)
CHECKPOINT, MODELS = "checkpoint", "models.bin"


def hash_of(experiment: Experiment) -> str:
    """Names a run by all that determines its figures: not by where it runs nor where it is written."""
    every = config.to_table(experiment, naming=True)
    table = {k: v for k, v in every.items() if k not in ("engine", "silos", "deployment", "out")}
    text = json.dumps({"covey": __version__, **table}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run, or may hold one: nothing is read or written before it is asked for."""

    path: Path

    @classmethod
    def named_by_hash(cls, out: Path, experiment: Experiment) -> RunFolder:
        """Where runs are kept that tables and audits share, so that none is made twice."""
        return cls(out / "runs" / hash_of(experiment))

    def seed(self, seed: int) -> RunFolder:
        """One of several seeds."""
        return RunFolder(self.path / f"seed-{seed}")

    # ------------------------------------------------------------ paths

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def result(self) -> Path:
        return self.path / RESULT

    @property
    def federation(self) -> Path:
        return self.path / FEDERATION

    @property
    def report(self) -> Path:
        return self.path / REPORT

    @property
    def models(self) -> Path:
        return self.path / MODELS

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    # ------------------------------------------------------------ how far it has come

    @property
    def finished(self) -> bool:
        """result.json is written last, and whole or not at all."""
        return self.result.is_file()

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return files.has_checkpoint(self.checkpoint)

    def experiment(self) -> Experiment:
        """As config.toml says."""
        return Experiment.read(files.expect(self.path, CONFIG))

    def refuse_other(self, experiment: Experiment) -> None:
        """A folder with a run of other settings is left as it is."""
        if self.config.is_file() and hash_of(self.experiment()) != hash_of(experiment):
            raise CoveyError(
                f"{self.path} holds a run of other settings: choose another folder with --out, or remove it"
            )

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Inside, no other process runs in this folder: two would interleave their rounds."""
        lock, fresh = self.path / ".lock", not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = files.lock(lock)
        except OSError as e:  # it is a file, or not ours
            raise self._unfit(e) from e
        if held is None:
            raise Unavailable(
                f"another covey process{files.owner(lock)} runs in {self.path}: wait for it, or choose another folder with --out"
            )
        with held:
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
                if fresh:
                    with suppress(OSError):  # it holds a run now
                        self.path.rmdir()

    def _unfit(self, e: OSError) -> CoveyError:
        return CoveyError(f"{self.path} cannot be the folder of a run: {e.strerror}; choose another with --out")

    def refuse_other_data(self, data: Json) -> None:
        """A run goes on with the data that it began with; folders from before fingerprints cannot tell."""
        before = read_json(self.federation, []).get("data")
        if not isinstance(before, dict) or not isinstance(before.get("parts"), dict):
            return
        known = {k: v for k, v in before["parts"].items() if k in data["parts"] or k != "split"}  # of data not yet cut
        changed = difference(known, data["parts"])
        if changed:
            raise CoveyError(
                f"{self.path} was begun with other data: {changed} of '{data['name']}' differ from '{before.get('name')}'; "
                "go on with the same data, or begin a new run elsewhere"
            )

    # ------------------------------------------------------------ writing

    def clear(self) -> None:
        """Takes an old run's files away, so that none of them is taken for the new one's."""
        try:
            for old in (self.metrics, self.result, self.report, self.models):
                old.unlink(missing_ok=True)
            files.remove_checkpoint(self.checkpoint)
        except OSError as e:  # it is a file, or not ours
            raise self._unfit(e) from e

    def keep_only(self, names: Iterable[str]) -> None:
        """Takes away what a finished run needs no more, where many are kept."""
        for name in {FEDERATION, REPORT, MODELS, METRICS, CONFIG} - set(names):
            (self.path / name).unlink(missing_ok=True)
        files.remove_checkpoint(self.checkpoint)

    def write_config(self, experiment: Experiment) -> None:
        files.write_atomically(self.config, experiment.toml().encode())

    def write_federation(self, summary: Json) -> None:
        files.write_json(self.federation, summary)

    def append_record(self, record: Json) -> None:
        files.append_line(self.metrics, record)

    def write_records(self, records: Iterable[Json]) -> None:
        files.write_lines(self.metrics, records)

    def write_result(self, content: Json) -> None:
        files.write_json(self.result, content)

    def write_models(self, models: Models) -> None:
        files.write_atomically(self.models, models.bytes())

    def save(self, content: dict[str, Any], keys: dict[str, Any]) -> None:
        """A checkpoint."""
        files.save(self.checkpoint, content, keys)

    def drop_checkpoint(self) -> None:
        """Of a finished run that nobody goes on with: with what attacks remember, it may take more room than all the rest."""
        if self.finished:
            files.remove_checkpoint(self.checkpoint)

    # ------------------------------------------------------------ reading

    def load(self, keep: Keep | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """(content, keys) of the checkpoint. `keep`: copies its vectors to where they shall lie."""
        return files.load(self.checkpoint, keep)

    def read_models(self) -> Models:
        """What the clients of a finished run predict with."""
        if not self.models.is_file():
            several = next(iter(sorted(self.path.glob("seed-*"))), None)
            where = "give the folder of a finished run"
            if several:
                where = f"each seed has its own: give {several}"
            elif self.finished and (self.path / STATUS).is_file():
                where = "a coordinator keeps no models to predict with, its silos do: give a silo's --state folder"
            elif self.finished:
                where = "its run kept figures alone (a run of tables): run it again without figures_only"
            raise CoveyError(f"{self.path} holds no {MODELS}: {where}")
        return Models.read(self.models.read_bytes(), self.experiment().model)

    def records(self) -> list[Json]:
        """metrics.jsonl; a last line that was cut off is left out."""
        return files.read_lines(self.metrics)

    def result_json(self) -> Json:
        """result.json of a finished run."""
        path = files.expect(self.path, RESULT)
        try:
            content: Json = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise ValueError("it holds no table")
        except ValueError as e:
            found = f"{self.result} is damaged ({e})"
            raise Damaged(f"{found}: remove it and run again", found) from e
        return content

    def read(self) -> Run:
        """All that is there, with patience; refuses only a folder with neither a result nor a round to show."""
        if not self.path.is_dir():
            raise CoveyError(f"{self.path} is not a folder; give the folder that `covey run --out` wrote.")
        problems: list[str] = []
        result, rounds = read_json(self.result, problems), read_rounds(self.metrics, problems)
        if not result and not rounds:
            raise CoveyError(
                f"{self.path} holds no {RESULT} and no round in {METRICS}; give the folder that `covey run --out` wrote."
            )
        text, config = read_toml(self.config, problems)
        federation = read_json(self.federation, problems)
        return Run(self.path.resolve().name, result, rounds, federation, config, text, tuple(problems))
