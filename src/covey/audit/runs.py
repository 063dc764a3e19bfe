"""The audit: every attack that applies to an experiment, from every vantage, in one matrix of what could leak × who might learn it.

A run takes one attack of a name, so an attack from a second vantage gets a second run of the same experiment; an attack that
changes what its client sends gets one of its own. Runs lie under `out` by a hash of their configuration: finished ones are
read back, interrupted ones resumed, and each is an ordinary run with its own report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from covey import files
from covey.attacks.declaration import declaration
from covey.attacks.finding import Finding
from covey.attacks.observe import check_vantage
from covey.audit.canaries import audit_ledger
from covey.audit.matrix import Audit, fill
from covey.audit.pooling import pooled
from covey.audit.questions import Questions, Watch, registered, usual_place
from covey.data.federation import Federation
from covey.engines.settle import settled
from covey.errors import CoveyError, NotFinite, Unavailable
from covey.experiment.experiment import EngineConfig, Experiment
from covey.results.folder import RunFolder
from covey.results.provenance import versions
from covey.rounds.completion import complete
from covey.rounds.loop import Callback
from covey.rounds.side_by_side import InTurn, Job, alone, completing, spread_over
from covey.statistics import wilson

_NO_SETTINGS = ("attacks", "engine", "out", "seeds", "silos", "deployment")  # say nothing about what leaks here


def audit(
    experiment: Experiment,
    out: str | Path,
    *,
    federation: Federation | None = None,
    quiet: bool = False,
    watch: Callback | None = None,
    ledger: bool = False,
    processes: bool = False,
) -> Audit:
    """Runs what is needed (`experiment.seeds` seeds, under `out/runs`) and fills the matrix; the caller writes it where it wants.

    `federation` is data of your own, in place of the experiment's dataset and partition. `watch` is called after every round, for a
    progress of the caller's own. `ledger`: what is claimed there is tested, too. `processes`: runs are made side by side, each in a
    process of its own, except on data that were handed over.
    """
    check_places(experiment)
    if processes and federation is None:
        for _ in made_ahead([experiment], out, True, quiet):
            pass
    matrix = matrix_of(experiment, out, quiet, watch, federation)
    return _with_ledger(matrix, experiment, federation) if ledger else matrix


def _with_ledger(matrix: Audit, experiment: Experiment, federation: Federation | None) -> Audit:
    try:
        return replace(matrix, ledger=tuple(audit_ledger(experiment, federation=federation)))
    except CoveyError as problem:  # it costs the ledger's test, not the attacks
        return replace(matrix, notes=(*matrix.notes, f"the ledger was not tested: {problem}"))


def check_places(experiment: Experiment) -> None:
    """The audit looks from everywhere, whatever its attacks are configured for: a misspelt place would go unnoticed."""
    for attack in experiment.attacks:
        if not usual_place(attack):
            check_vantage(attack.vantage, experiment.algorithm)


def jobs_of(
    experiment: Experiment, out: str | Path, chosen: Collection[Watch] | None = None, name: str = ""
) -> list[Job]:
    """The runs that an audit's cells are read from, as long as no attack fails; their settings are written down."""
    experiment = settled(experiment)
    jobs = []
    for seed in range(experiment.seed, experiment.seed + experiment.seeds):
        questions = Questions(replace(experiment, seed=seed))
        for n, batch in enumerate(questions.batches(chosen), start=1):
            watched = questions.watched(batch)
            folder = RunFolder.named_by_hash(Path(out), watched)
            if not folder.config.is_file():
                folder.write_config(replace(watched, engine=_rarely_saved(watched)))
            jobs.append(Job(f"{name or spoken(experiment)}, seed {seed}, run {n}", watched, folder))
    return jobs


def _rarely_saved(experiment: Experiment) -> EngineConfig:
    """An audit's runs are short, and what their attacks remember is large: saved when interrupted, and every few minutes."""
    return replace(alone(experiment.engine), checkpoint_every=0)


def spoken(experiment: Experiment) -> str:
    shield = experiment.defence.name if experiment.defence else "no defence"
    sealed = "" if experiment.encryption == "none" else f" and {experiment.encryption}"
    return f"{experiment.algorithm.name}, {shield}{sealed}"


def made_ahead(experiments: Sequence[Experiment], out: str | Path, processes: bool, quiet: bool) -> Iterator[int]:
    """Makes the runs of several audits: which of them can be read, each in its turn. See `ahead`."""
    return ahead([_jobs_or_none(experiment, out) for experiment in experiments], experiments[0], processes, quiet)


def ahead(jobs: Sequence[Sequence[Job]], first: Experiment, processes: bool, quiet: bool) -> Iterator[int]:
    """Makes groups of runs, as many side by side as `first` says there is room for: which group is complete, each in its turn.

    What fails is left as it is: whoever reads the group runs it again, attack by attack, and says what is wrong.
    """
    waiting = [{job.folder.path for job in group if not job.folder.finished} for group in jobs]
    by_folder = {job.folder.path: job for job in _in_order(jobs)}  # groups may share runs
    places = partial(spread_over, first) if processes else InTurn
    ready = 0
    for job, _ in completing(list(by_folder.values()), places, "audit", quiet):
        job.folder.drop_checkpoint()
        for left in waiting:
            left.discard(job.folder.path)
        while ready < len(waiting) and not waiting[ready]:
            yield ready
            ready += 1
    yield from range(ready, len(jobs))


def _in_order(groups: Sequence[Sequence[Job]]) -> Iterator[Job]:
    """Group by group, but active attacks after the next group's passive ones: who measures harm reads an undisturbed run of the
    same seed, and where many runs are made at once it would not be finished, and be made again.
    """
    held: list[Job] = []
    for group in groups:
        yield from (job for job in group if not _active(job))
        yield from held
        held = [job for job in group if _active(job)]
    yield from held


def _active(job: Job) -> bool:
    return any(declaration(attack).active for attack in job.experiment.attacks)


def _jobs_or_none(experiment: Experiment, out: str | Path) -> list[Job]:
    try:
        return jobs_of(experiment, out)
    except CoveyError:  # which the audit itself will say
        return []


def matrix_of(
    experiment: Experiment,
    out: str | Path,
    quiet: bool,
    watch: Callback | None,
    federation: Federation | None = None,
) -> Audit:
    """The same without asking whether the experiment's attacks look from places that are there."""
    experiment = settled(experiment, federation)
    gathered = gather(experiment, out, quiet, watch, federation)
    undisturbed = gathered.undisturbed
    questions = Questions(experiment)
    done = {one: (gathered.score(one), scored[0][1]) for one, scored in gathered.scored.items()}
    settings = questions.watched(()).table()
    return Audit(
        **heading(experiment),
        stand_in=next((result["stand_in"] for result in undisturbed.values()), ""),
        accuracy=_mean(result["accuracy"].get("client_mean") for result in undisturbed.values()),
        cells=fill(questions, done, {one: why for one, why in gathered.failed.items() if one not in done}),
        runs=tuple(gathered.runs),
        settings={k: v for k, v in settings.items() if k not in _NO_SETTINGS},
        rows={row.name: row.question for row in questions.rows},
        seeds=experiment.seeds,
        cost=dict(next(iter(undisturbed.values()), {}).get("bytes") or {}),
        claimed=claimed_by(undisturbed.values()),
    )


@dataclass(frozen=True)
class Gathered:
    """What the runs of one experiment came to, seed by seed."""

    scored: dict[Watch, list[tuple[Finding, str]]]  # a score for each seed, and the report of its run
    failed: dict[Watch, str]
    runs: list[dict[str, Any]]
    undisturbed: dict[int, dict[str, Any]]  # seed -> a result that no active attack spoils
    same_clients: bool = False  # with the same samples, whatever the seed

    def score(self, watch: Watch) -> Finding:
        """Of all seeds together."""
        return pooled([finding for finding, _ in self.scored[watch]], self.same_clients)


def gather(
    experiment: Experiment,
    out: str | Path,
    quiet: bool = True,
    watch: Callback | None = None,
    federation: Federation | None = None,
    chosen: Collection[Watch] | None = None,
) -> Gathered:
    """Reads the runs of all seeds back, and makes those that are missing; CoveyError where it is the experiment that fails."""
    drawn = federation is None and not getattr(experiment.partition, "as_the_data_say", False)
    gathered = Gathered({}, {}, [], {}, same_clients=not drawn)
    for seed in range(experiment.seed, experiment.seed + experiment.seeds):
        questions = Questions(replace(experiment, seed=seed))
        for batch in questions.batches(chosen):
            for watches, result, report, problem in _results(questions, batch, Path(out), quiet, watch, federation):
                if result is None:
                    for one in watches:
                        gathered.failed[one] = str(problem)
                        if isinstance(problem, NotFinite) and seed in gathered.undisturbed and questions.harms(one):
                            gathered.scored.setdefault(one, []).append((_ruin(one, questions, problem), ""))
                    continue
                for one in watches:
                    finding = Finding.of(one.attack, result["attacks"].get(one.attack))
                    if finding is None:
                        gathered.failed[one] = "ended without a score"
                    else:
                        gathered.scored.setdefault(one, []).append((finding, report))
                attacks = [f"{one.attack} from the {one.column}" for one in watches]
                gathered.runs.append({"report": report, "attacks": attacks, "seed": seed})
                if not any(questions.declared[one.attack].active for one in watches):
                    gathered.undisturbed.setdefault(seed, result)
    problems = set(gathered.failed.values())
    if problems and not gathered.scored and len(problems) == 1:
        raise CoveyError(problems.pop())  # it is the experiment, not an attack
    return gathered


def _ruin(watch: Watch, questions: Questions, problem: NotFinite) -> Finding:
    """Of an attack that ended the run itself, which without it goes through: all harm that there is. One run proves little."""
    used = "its own uploads, under which the run broke down"
    note = f"Under it others can train no more: {problem}."
    place, metric = questions.vantage(watch.column), "share of runs that it ends"
    return Finding(watch.attack, place, metric, 1.0, 0.0, *wilson(1.0, 1), used=used, note=note)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def claimed_by(results: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Mechanism -> the largest ε that the ledgers of these runs state; None: they state none."""
    stated: dict[str, float | None] = {}
    for result in results:
        for mechanism, entry in (result.get("privacy") or {}).items():
            epsilon, before = entry.get("epsilon"), stated.get(mechanism, 0.0)
            stated[mechanism] = None if epsilon is None or before is None else max(before, epsilon)
    return stated


def _results(
    questions: Questions,
    batch: tuple[Watch, ...],
    out: Path,
    quiet: bool,
    watch: Callback | None,
    federation: Federation | None,
) -> Iterator[tuple[tuple[Watch, ...], dict[str, Any] | None, str, CoveyError | None]]:
    """(attacks, result.json, report, problem) of a batch; where one attack spoils it, of every attack in a run of its own."""
    watched = questions.watched(batch)
    folder = RunFolder.named_by_hash(out, watched)
    try:
        complete(watched, folder, callbacks=[watch] if watch else [], federation=federation, quiet=quiet)
        folder.drop_checkpoint()
        yield batch, folder.result_json(), str(folder.report.relative_to(out)), None
    except Unavailable:  # of this machine: no attack is at fault
        raise
    except CoveyError as problem:
        if len(batch) <= 1:
            if not batch:
                raise
            yield batch, None, "", problem
            return
        bare = questions.watched(
            ()
        )  # which raises where it is the experiment that fails, and no attack need be tried alone
        complete(bare, RunFolder.named_by_hash(out, bare), federation=federation, quiet=quiet)
        for one in batch:
            yield from _results(questions, (one,), out, quiet, watch, federation)
    except ModuleNotFoundError as problem:  # of a part that this experiment cannot do without: no attack is at fault
        raise CoveyError(f"it needs the package '{problem.name}', which is not installed here") from problem
    except Exception as problem:
        if len(batch) != 1 or not questions.declared[batch[0].attack].active:
            raise
        words = f"failed with {type(problem).__name__}: {problem}"  # it acts where a client's code runs
        yield batch, None, "", CoveyError(words)


def heading(experiment: Experiment) -> dict[str, Any]:
    return {
        "algorithm": experiment.algorithm.name,
        "dataset": experiment.data_name,
        "partition": experiment.partition.name,
        "defence": experiment.defence.name if experiment.defence else "none",
        "encryption": experiment.encryption,
        "clients": experiment.clients,
        "clusters": experiment.clusters,
        "rounds": experiment.training.rounds,
        "seed": experiment.seed,
        "notes": registered()[1],
    }


def write(audits: Sequence[Audit], out: str | Path, command: str = "") -> tuple[Path, Path]:
    """audit.json and audit.html; beside them card.md, a page to hand on."""
    from covey.audit.page import write_audit  # imports jinja2 only here

    return write_numbers(audits, out, command), write_audit(audits, Path(out) / "audit.html", command)


def write_numbers(audits: Sequence[Audit], out: str | Path, command: str = "") -> Path:
    """The same without the page."""
    from covey.audit.card import cards

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"schema": 1, "command": command, "versions": versions(), "audits": [a.json() for a in audits]}
    files.write_json(folder / "audit.json", content)
    files.write_atomically(folder / "card.md", cards(audits, command).encode())
    return folder / "audit.json"


def store(audits: Sequence[Audit], docs: str | Path, name: str, command: str) -> Path:
    """Keeps audits among the documented results, without the runs behind them and so without links to their reports: their folder.

    No audit.html: it follows from audit.json, and the site makes it from there (`site/hooks.py`), as `covey ui` does.
    """
    alone = [
        replace(
            audit,
            cells=tuple(replace(cell, reports={}) for cell in audit.cells),
            runs=tuple({**run, "report": ""} for run in audit.runs),
        )
        for audit in audits
    ]
    from covey.audit.picture import picture
    from covey.audit.text import markdown

    folder = Path(docs) / "results" / name
    files.write_atomically(folder / "matrix.svg", picture(alone).encode())
    files.write_atomically(folder / "README.md", markdown(alone, command).encode())
    write_numbers(alone, folder, command)
    return folder
