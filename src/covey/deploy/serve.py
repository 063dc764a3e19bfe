"""`covey serve`, `covey join` and `covey second-server`: a party's folder, its process, and Flower under it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covey.algorithms.contract import declaration
from covey.deploy import flower
from covey.deploy.agreed import Agreed, experiment_of, samples_and_columns_at, table_of
from covey.deploy.coordinator import Coordinator
from covey.deploy.keys import deployed, load, protected, weak_delta
from covey.deploy.membership.records import SERVER, Party
from covey.deploy.membership.roll import Roll, following, node_keys
from covey.deploy.membership.standing import DAY, Reminder, validities
from covey.deploy.second_server import SecondServer
from covey.deploy.silo import Silo
from covey.deploy.watch.endpoint import open_endpoint
from covey.deploy.watch.journal import TEXT, Journal
from covey.deploy.watch.watch import Watch
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.experiment.own_code import own_code
from covey.loopback import LOOPBACK, port_of
from covey.report.progress import Progress
from covey.results.status import COORDINATOR, Status
from covey.rounds.asynchronous import ages_in_words
from covey.rounds.result import Result

PORT = 9092
SILO, SECOND = "silo", "second server"
ADDRESS = re.compile(r"(?:\[(?P<six>[^][]+)\]|(?P<host>[^][:]+)):(?P<port>\d{1,5})", re.ASCII)


@contextmanager
def only_for_its_owner() -> Iterator[None]:
    """What a party writes in here, and what its child processes write, nobody else on the machine can read."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@only_for_its_owner()
def serve(
    folder: Path,
    address: str,
    out: Path,
    *,
    insecure: bool = False,
    quiet: bool = False,
    log: str = TEXT,
    metrics: int | None = None,
) -> Result:
    """The coordinator, from its first round to its last."""
    flower.have_flower()
    party, agreed = load(folder)
    say = Journal(party.name, log, quiet)
    _name_own_code(agreed, say)
    if party.name != SERVER:
        raise CoveyError(f"{folder} is the folder of '{party.name}': `covey serve` wants the server's")
    host, port = _address(address)
    _expect_folder(out, "--out")
    tls = None if insecure else flower.Tls(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    if not insecure:
        _expect_files(folder, "server.crt", "server.key")
    if not node_keys(folder):
        raise CoveyError(
            f"{folder / 'nodes'} admits nobody: copy the server's folder again, with its `nodes`, or add silos (`covey keys add`)"
        )
    if insecure:
        say("--insecure: no TLS, and Flower lets any node in; letters are still signed")
    with watched(Status(party.name, COORDINATOR), out, folder, say, metrics) as watch:
        if not insecure:
            Reminder(say).look(lambda: validities(folder))
        say(f"starting Flower's SuperLink at {address}")
        link = flower.Link(out / "flower", host, port, tls, node_keys(folder), say)
        try:
            return _serve(link, folder, party, agreed, out, say, quiet or log != TEXT, watch)
        finally:
            link.close()


@contextmanager
def watched(status: Status, folder: Path, keys: Path, say: Journal, metrics: int | None) -> Iterator[Watch]:
    """A party's watch, with its endpoint where one is wanted, from its first word to how it ended."""
    watch = Watch(status, say, folder)
    watch.describe(**_expires(keys))
    endpoint = None if metrics is None else open_endpoint(lambda: watch.status, metrics)
    if endpoint is not None:
        say(f"metrics, health and status at http://{LOOPBACK}:{port_of(endpoint)}/ (this machine only)")
    try:
        yield watch
    except BaseException as e:
        watch.over(e)
        raise
    else:
        watch.over()
    finally:
        if endpoint is not None:
            endpoint.shutdown()
            endpoint.server_close()


def _expires(folder: Path) -> dict[str, Any]:
    """When the certificates of a party's folder end; they may be renewed while it runs."""
    return {"expires": {one.what: one.until for one in validities(folder)}}


def _serve(
    link: flower.Link,
    folder: Path,
    party: Party,
    agreed: Agreed,
    out: Path,
    say: Journal,
    quiet: bool,
    watch: Watch,
) -> Result:
    roll, reminder = following(party, folder, say), Reminder(say, first=time.time() + DAY)

    def follow() -> Roll:
        if link.authenticated:
            reminder.look(lambda: validities(folder))
        return roll()

    coordinator = Coordinator(
        party,
        agreed,
        link,
        out,
        follow=follow,
        say=say,
        command=f"covey serve --keys {folder}",
        watch=watch,
    )
    watch.begin(lambda: {**coordinator.spending, **_expires(folder)})
    rounds = coordinator.experiment.training.rounds
    title = f"{coordinator.algorithm.name}, {len(party.silos)} silos"
    with Progress(rounds, title, quiet=quiet) as progress:
        return coordinator.run(
            lambda done, record: progress.update(
                done=done,
                accuracy=(record["accuracy"] or {}).get("client_mean"),
                rate=f"{record['participants']} silos",
                note=ages_in_words(record["extra"]),
            )
        )


def check_same(table: dict[str, Any], folder: Path) -> None:
    """Refuses to serve an experiment with keys that were made for another; `covey keys make` may have changed it as real
    parties run it.
    """
    _, agreed = load(folder)
    experiment = Experiment.of(protected(table))
    theirs, ours, changed = experiment_of(agreed).table(), experiment.table(), deployed(experiment).table()
    own = ("engine", "out", "deployment", "silos", "attacks")
    different = [k for k in ours if k not in own and theirs.get(k) not in (ours[k], changed[k])]
    if different:
        raise CoveyError(
            f"the keys in {folder} were made for another experiment (other {', '.join(different)}): "
            "make keys for this one with `covey keys make`, or leave the experiment out"
        )


@only_for_its_owner()
def join(
    folder: Path,
    data: Path,
    superlink: str,
    state: Path,
    *,
    device: str = "auto",
    share_accuracy: bool = False,
    insecure: bool = False,
    quiet: bool = False,
    budget: float | None = None,
    log: str = TEXT,
    metrics: int | None = None,
) -> None:
    """A silo, until the coordinator says that the run is over."""
    flower.have_flower()
    party, agreed = load(folder)
    if not party.role.startswith("client:"):
        raise CoveyError(f"{folder} is the folder of '{party.name}': `covey join` wants a silo's")
    _check_line(folder, superlink, state, insecure)
    say = Journal(party.name, log, quiet)
    _name_own_code(agreed, say)
    samples, columns = samples_and_columns_at(data, agreed)
    silo = Silo(
        party,
        agreed,
        samples,
        state,
        columns=columns,
        device=device,
        share_accuracy=share_accuracy,
        say=say,
        keys=folder,
        budget=budget,
    )
    if silo.stopped:
        raise CoveyError(silo.stopped)
    for sentence in weak_delta(silo.experiment) if silo.budget.account.limit else ():
        say(f"the budget of ε = {silo.budget.account.limit:g}: {sentence}")
    say(f"{party.name}: {len(samples[1])} samples to train on, {len(samples[3])} to test with; joining {superlink}")
    with watched(Status(party.name, SILO), state, folder, say, metrics) as watch:
        _live(folder, superlink, state, insecure, silo, say, watch)
        if silo.stopped:
            raise CoveyError(silo.stopped)


@only_for_its_owner()
def second_server(
    folder: Path,
    superlink: str,
    state: Path,
    *,
    insecure: bool = False,
    quiet: bool = False,
    log: str = TEXT,
    metrics: int | None = None,
) -> None:
    """The second server of an algorithm that has one, until the coordinator says that the run is over."""
    flower.have_flower()
    party, agreed = load(folder)
    if party.name == SERVER or party.role.startswith("client:"):
        raise CoveyError(
            f"{folder} is the folder of '{party.name}': `covey second-server` wants that of the second server"
        )
    _check_line(folder, superlink, state, insecure)
    say = Journal(party.name, log, quiet)
    _name_own_code(agreed, say)
    server = SecondServer(party, agreed, state, say, keys=folder)
    if server.stopped:
        raise CoveyError(server.stopped)
    if (bits := server.told_bits) is not None:
        say(f"{party.name}: this run's answers say at most {bits:,.0f} bits about its key (docs/deployment/trust.md)")
    say(f"{party.name}: joining {superlink}")
    with watched(Status(party.name, SECOND), state, folder, say, metrics) as watch:
        _live(folder, superlink, state, insecure, server, say, watch)


def _live(
    folder: Path,
    superlink: str,
    state: Path,
    insecure: bool,
    party: Silo | SecondServer,
    say: Journal,
    watch: Watch,
) -> None:
    tls = None if insecure else flower.Tls(folder / "ca.crt", node_key=folder / "node.key")
    if insecure:
        say("--insecure: no TLS, no node authentication; letters are still signed")

    clock = flower.Clock(say)
    party.mailbox.follow(clock.now)
    experiment = party.experiment
    declared = declaration(experiment.algorithm)
    round, outcome = party.latest
    watch.expect([COORDINATOR])
    watch.describe(
        what=declared.label or declared.name,
        rounds=experiment.training.rounds,
        round=round,
        done=min(round, experiment.training.rounds),
        words=outcome,
    )
    watch.begin(lambda: {**party.spending, **_expires(folder)})

    def answer(data: bytes) -> bytes:
        begin, reply = time.monotonic(), b""
        try:
            reply = party.handle(data)
            return reply
        finally:
            watch.turn(*party.latest, time.monotonic() - begin, len(data), len(reply))

    def hear(trouble: str) -> None:
        if trouble:
            watch.left(COORDINATOR, trouble)
        else:
            watch.met(COORDINATOR)

    flower.answer_calls(state / "flower", superlink, tls, answer, lambda: party.finished, say, clock, hear)


def _check_line(folder: Path, superlink: str, state: Path, insecure: bool) -> None:
    """What a party needs to reach the coordinator, before it reads any data."""
    _address(superlink)
    _expect_folder(state, "--state")
    if not insecure:
        _expect_files(folder, "ca.crt", "node.key")


def _expect_files(folder: Path, *names: str) -> None:
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise CoveyError(f"{folder} holds no {' and no '.join(absent)}: copy this party's folder again, as it was made")


def _expect_folder(path: Path, option: str) -> None:
    """A folder, or room for one."""
    blocked = next((p for p in (path, *path.parents) if p.exists() and not p.is_dir()), None)
    if blocked is not None:
        raise CoveyError(f"{blocked} is a file, {option} wants a folder: choose another")


def _name_own_code(agreed: Agreed, journal: Journal) -> None:
    """Before any of it is imported, and also to who wants quiet. No code travels: a party runs what is installed here."""
    aloud = Journal(journal.party, journal.form)
    for path in own_code(table_of(agreed)):
        aloud(f"this experiment uses own code, as it is installed here: {path}")


def _address(text: str) -> tuple[str, int]:
    parts = ADDRESS.fullmatch(text)
    if parts is None or not 0 < int(parts["port"]) < 65536:
        raise CoveyError(
            f"'{text}' is no address: write HOST:PORT, for example fed.example.org:{PORT}, or [::1]:{PORT} where HOST has colons"
        )
    return parts["six"] or parts["host"], int(parts["port"])
