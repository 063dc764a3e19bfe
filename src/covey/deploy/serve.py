"""`covey serve`, `covey join` and `covey second-server`: a party's folder, its process, and Flower under it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covey.deploy import flower
from covey.deploy.agreed import Agreed, experiment_of, samples_at, table_of
from covey.deploy.coordinator import Coordinator
from covey.deploy.keys import deployed, load, protected
from covey.deploy.membership.records import SERVER, Party
from covey.deploy.membership.roll import Roll, following, node_keys
from covey.deploy.membership.standing import DAY, Reminder, validities
from covey.deploy.second_server import SecondServer
from covey.deploy.silo import Silo
from covey.errors import CoveyError, printable
from covey.experiment.experiment import Experiment
from covey.experiment.own_code import own_code
from covey.report.progress import Progress
from covey.rounds.result import Result

PORT = 9092
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
def serve(folder: Path, address: str, out: Path, *, insecure: bool = False, quiet: bool = False) -> Result:
    """The coordinator, from its first round to its last."""
    flower.have_flower()
    party, agreed = load(folder)
    say = _say(quiet)
    _name_own_code(agreed)
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
    else:
        Reminder(say).look(lambda: validities(folder))
    say(f"starting Flower's SuperLink at {address}")
    link = flower.Link(out / "flower", host, port, tls, node_keys(folder), say)
    try:
        return _serve(link, folder, party, agreed, out, say, quiet)
    finally:
        link.close()


def _serve(
    link: flower.Link, folder: Path, party: Party, agreed: Agreed, out: Path, say: Callable[[str], None], quiet: bool
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
    )
    rounds = coordinator.experiment.training.rounds
    title = f"{coordinator.algorithm.name}, {len(party.silos)} silos"
    with Progress(rounds, title, quiet=quiet) as progress:
        return coordinator.run(
            lambda done, record: progress.update(
                done=done,
                accuracy=(record["accuracy"] or {}).get("client_mean"),
                rate=f"{record['participants']} silos",
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
) -> None:
    """A silo, until the coordinator says that the run is over."""
    flower.have_flower()
    party, agreed = load(folder)
    if not party.role.startswith("client:"):
        raise CoveyError(f"{folder} is the folder of '{party.name}': `covey join` wants a silo's")
    _check_line(folder, superlink, state, insecure)
    say = _say(quiet)
    _name_own_code(agreed)
    samples = samples_at(data, agreed)
    silo = Silo(
        party, agreed, samples, state, device=device, share_accuracy=share_accuracy, say=say, keys=folder, budget=budget
    )
    if silo.stopped:
        raise CoveyError(silo.stopped)
    say(f"{party.name}: {len(samples[1])} samples to train on, {len(samples[3])} to test with; joining {superlink}")
    _live(folder, superlink, state, insecure, silo, say)
    if silo.stopped:
        raise CoveyError(silo.stopped)


@only_for_its_owner()
def second_server(folder: Path, superlink: str, state: Path, *, insecure: bool = False, quiet: bool = False) -> None:
    """The second server of an algorithm that has one, until the coordinator says that the run is over."""
    flower.have_flower()
    party, agreed = load(folder)
    if party.name == SERVER or party.role.startswith("client:"):
        raise CoveyError(
            f"{folder} is the folder of '{party.name}': `covey second-server` wants that of the second server"
        )
    _check_line(folder, superlink, state, insecure)
    say = _say(quiet)
    _name_own_code(agreed)
    server = SecondServer(party, agreed, state, say, keys=folder)
    if server.stopped:
        raise CoveyError(server.stopped)
    if (bits := server.told_bits) is not None:
        say(f"{party.name}: this run's answers say at most {bits:,.0f} bits about its key (docs/deployment/trust.md)")
    say(f"{party.name}: joining {superlink}")
    _live(folder, superlink, state, insecure, server, say)


def _live(
    folder: Path, superlink: str, state: Path, insecure: bool, party: Silo | SecondServer, say: Callable[[str], None]
) -> None:
    tls = None if insecure else flower.Tls(folder / "ca.crt", node_key=folder / "node.key")
    if insecure:
        say("--insecure: no TLS, no node authentication; letters are still signed")

    clock = flower.Clock(say)
    party.mailbox.follow(clock.now)
    flower.answer_calls(state / "flower", superlink, tls, party.handle, lambda: party.finished, say, clock)


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


def _name_own_code(agreed: Agreed) -> None:
    """Before any of it is imported, and also to who wants quiet. No code travels: a party runs what is installed here."""
    for path in own_code(table_of(agreed)):
        _say(False)(f"this experiment uses own code, as it is installed here: {path}")


def _address(text: str) -> tuple[str, int]:
    parts = ADDRESS.fullmatch(text)
    if parts is None or not 0 < int(parts["port"]) < 65536:
        raise CoveyError(
            f"'{text}' is no address: write HOST:PORT, for example fed.example.org:{PORT}, or [::1]:{PORT} where HOST has colons"
        )
    return parts["six"] or parts["host"], int(parts["port"])


def _say(quiet: bool) -> Callable[[str], None]:
    """Sentences for the party's owner: on stderr, where they stand above a live bar. Words of others may stand in them, so
    what a terminal would obey is written out."""
    return lambda text: None if quiet else print(printable(text), file=sys.stderr, flush=True)
