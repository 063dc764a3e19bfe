"""Targets that read files and letters' contents: codec, experiments, run folders, checkpoints, keys, samples, HTTP."""

from __future__ import annotations

import csv
import functools
import io
import json
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from covey import config, files
from covey.crypto.openings.boxes import BoxKey
from covey.data.own.inspection import inspect
from covey.data.own.rules import Rules
from covey.data.own.silo import read_folder
from covey.data.sources import cifar, idx, load, packed
from covey.data.sources.files import Source
from covey.deploy import keys, letters
from covey.deploy.flower import door
from covey.deploy.membership import inventory
from covey.deploy.membership import requests as membership
from covey.deploy.membership.records import Admission
from covey.deploy.membership.roll import Revocation, node_keys, read_roll
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.experiment.presets import PRESETS
from covey.messages import decode, encode, size
from covey.report.page import render, report_page
from covey.results.folder import RunFolder, hash_of
from covey.rounds.loop import run
from fuzz.engine import Attempt, Choices, Fault, Target, flip
from fuzz.mutation import changed_encoding, changed_message, changed_tree
from support.deployment import Deployment, rehearsal

# ---------------------------------------------------------------- the codec


@functools.cache
def values() -> list[Any]:
    """What crosses the wire, or lies on disk, in small."""
    t = torch.arange(6, dtype=torch.float32)
    return [
        letters.Letter("run", "round", "client:0", "12", "", letters.RoundReply(t.reshape(2, 3), 0.5)),
        letters.Hello("digest", "0.1", "", 0),
        letters.Refused(),
        {"round": 3, "state": (t, [b"x" * 2000] * 2, None), "records": [{"a": 1.5, 2: "é"}]},
        [np.arange(4, dtype=np.uint8), np.zeros((0, 3)), True, -(2**62), float("inf"), "\x1b[0m"],
        Admission("north", "client:0", 0, b"\0" * 32),
    ]


def _codec(folder: Path) -> Attempt:
    def attempt(data: bytes) -> None:
        own = data[:1] == b"\0"  # what we wrote ourselves is read without the bounds for foreign messages
        value = decode(data[1:] if own else data, foreign=not own)
        again = encode(value)
        if size(value) != len(again) or encode(decode(again)) != again:
            raise Fault("what was read is not written as it was read")

    return attempt


def _codec_trees(folder: Path) -> Attempt:
    attempt, whole = _codec(folder), [encode(value) for value in values()]

    def built(data: bytes) -> None:
        choices = Choices(data)
        which = choices.below(len(whole))
        own = b"\0" * choices.below(2)
        if choices.below(2):
            attempt(own + changed_message(values()[which], choices))
        else:
            attempt(own + changed_encoding(whole[which], choices))

    return built


# ---------------------------------------------------------------- experiments


@functools.cache
def tables() -> list[str]:
    return [config.to_toml(config.merge({}, table)) for table in PRESETS.values()] + [Experiment().toml()]


WORDS = (
    b"true", b"false", b"0", b"-1", b"nan", b"inf", b"1e400", b"99999999999999999999", b'""', b"[]", b"{}", b"[[1]]", b"'x'",
    b"1979-05-27", b"\n[algorithm]\n", b'name = "', b"\nclients = ", b"\nattacks = [", b".", b"=", b"[", b"]", b'"', b"\\", b"\n",
    b"fedcaprivacy", b"mingledpie", b"ckks", b"bfv", b"ldp", b"dp_sgd", b"pqfed", b"sattler", b"fedsoft", b"krum:0.2", b"silos",
    b"dirichlet", b"property", b"weighting", b"min_group", b"aggregation", b"rounds", b"epsilon", b"digits", b"name", b"x" * 300,
)  # fmt: skip


def reworded(data: bytes, random: Random) -> bytes:
    """A word put in or in the place of another, a line moved, or a plain change."""
    kind = random.randrange(5)
    if kind == 0 or not data:
        return flip(data, random)
    if kind == 1:
        at = random.randrange(len(data))
        return data[:at] + random.choice(WORDS) + data[at + random.randrange(12) :]
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    if kind == 2:
        head, equals, _ = lines[at].partition(b"=")
        lines[at] = head + equals + b" " + random.choice(WORDS)
    elif kind == 3:
        lines.insert(random.randrange(len(lines)), lines[at])
    else:
        del lines[at]
    return b"\n".join(lines)


def _experiments(folder: Path) -> Attempt:
    path = folder / "experiment.toml"

    def attempt(data: bytes) -> None:
        if b":" in data:  # paths of own code are imported by design; whatever is installed here would be
            data = data.replace(b":", b";")
        path.write_bytes(data)
        experiment = Experiment.read(path)
        again = Experiment.of(config.read_toml(_written(path, experiment.toml())))
        if hash_of(again) != hash_of(experiment):
            raise Fault("an experiment that is written and read is another one")

    return attempt


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _assignments(folder: Path) -> Attempt:
    def attempt(data: bytes) -> None:
        table: dict[str, Any] = {}
        for word in data.decode("utf-8", "replace").replace(":", ";").split("\n")[:4]:
            table = config.assign(table, word)
        Experiment.of(table)

    return attempt


def assignments() -> list[bytes]:
    return [
        b"training.lr=0.1\nalgorithm=ifca\nalgorithm.min_group=3",
        b"algorithm.name=fedcaprivacy\nencryption=bfv\nalgorithm.bits=3072",
        b'attacks=["identity_sets"]\ndefence.name=ldp\ndefence.epsilon=1',
        b"partition.name=dirichlet\npartition.alpha=0.1\nclients=5",
    ]


# ---------------------------------------------------------------- run folders and checkpoints


def small_run(folder: Path, rounds: int = 2) -> Path:
    """A real finished run, tiny."""
    experiment = Experiment.of(
        clients=4,
        clusters=2,
        partition={"name": "label_sets", "public": 10},
        training={"rounds": rounds, "epochs": 1},
        attacks=["loss_membership"],
        defence={"name": "ldp", "epsilon": 5.0},
        engine={"workers": 1},
        evaluation={"samples": 50},
    )
    run(experiment, out=folder, quiet=True)
    return folder


def _run_folders(folder: Path) -> Attempt:
    """Damaged run folders, read and shown: one file is another tree, or other bytes."""
    whole = small_run(folder / "whole")
    names = ["result.json", "federation.json", "metrics.jsonl", "config.toml"]
    texts = {name: (whole / name).read_bytes() for name in names}
    damaged = folder / "damaged"
    damaged.mkdir()

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        for name in names:
            (damaged / name).write_bytes(texts[name])
        for _ in range(1 + choices.below(2)):
            name = choices.of(names)
            (damaged / name).write_bytes(_damaged(texts[name], choices, name))
        page = report_page(RunFolder(damaged).read())
        markup = render(page)
        if "<script>alert" in markup or "\x1b" in markup:
            raise Fault("markup or an escape sequence of a file stands in the page")

    return attempt


def _damaged(text: bytes, choices: Choices, name: str) -> bytes:
    if choices.below(4) == 0 or name.endswith(".toml"):
        random = Random(choices.below(2**32))
        for _ in range(1 + choices.below(4)):
            text = reworded(text, random)
        return text
    lines = text.splitlines() if name.endswith(".jsonl") else [text]
    at = choices.below(len(lines))
    tree = json.loads(lines[at])
    for _ in range(1 + choices.below(3)):
        tree = changed_tree(tree, choices)
    with suppress(ValueError, RecursionError):
        lines[at] = json.dumps(tree).encode().replace(b'"\\u001b', b'"<script>alert\\u001b')
    return b"\n".join(lines) + b"\n"


def _checkpoints(folder: Path) -> Attempt:
    content = {
        "round": 1,
        "state": values()[0],
        "memories": {0: {"a": torch.ones(3)}},
        "attacks": [],
        "notes": [{}],
        "spends": [],
    }
    files.save(folder, content, {"clients": {"key": b"\1" * 40}})
    whole, other = (folder / "state.bin").read_bytes(), (folder / "keys.bin").read_bytes()

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        name = choices.of(("state.bin", "state.bin", "keys.bin"))
        (folder / "state.bin").write_bytes(whole)
        (folder / "keys.bin").write_bytes(other)
        kind = choices.below(3)
        if kind == 0:
            changed = changed_encoding(encode(content), choices)
        elif kind == 1:
            changed = changed_message(content, choices)
        else:
            changed = flip(whole if name == "state.bin" else other, Random(choices.below(2**32)))
        (folder / name).write_bytes(changed)
        read, secrets = files.load(folder)
        if not isinstance(read, dict) or not isinstance(secrets, dict):
            raise Fault("a checkpoint that is no table was read")

    return attempt


# ---------------------------------------------------------------- keys


def _key_folders(folder: Path) -> Attempt:
    deployment = Deployment(folder, rehearsal("routing", encryption="bfv", training={"rounds": 2}))
    root = deployment.folder / "keys"
    places = [
        (root / "silos" / "north", "party.bin"),
        (root / "silos" / "north", "agreed.bin"),
        (root / "server", "party.bin"),
        (root / "server", "nodes/north.bin"),
        (root / "server", "nodes/north.pub"),
        (root / "authority", "issued.bin"),
    ]
    whole = {(at, name): (at / name).read_bytes() for at, name in places}

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        at, name = choices.of(places)
        before = whole[at, name]
        small = name.endswith(".pub") or choices.below(3) == 0
        changed = flip(before, Random(choices.below(2**32))) if small else changed_message(decode(before), choices)
        (at / name).write_bytes(changed)
        try:
            if at.name == "authority":
                keys.read_issued(at)
            else:
                party, _ = keys.load(at)
                inventory.inspect(at)
                if at.name == "server":
                    node_keys(at)
                elif name == "party.bin" and party.agreed:
                    deployment.silo("north")
        finally:
            (at / name).write_bytes(before)

    return attempt


def _membership(folder: Path) -> Attempt:
    """A silo's request, an invitation that the right sender sealed, and a revocation, each with something wrong in it."""
    asked = membership.ask(folder / "north")
    request = folder / "north" / "north.request"
    keys.make(rehearsal("fedavg", model="softmax"), [asked], [], folder / "keys")
    sealed = decode((folder / "keys" / "invitations" / "north.invitation").read_bytes())
    own = BoxKey((folder / "north" / "opening.key").read_bytes())
    invited, server = decode(own.open(sealed.sender, sealed.box, membership.ABOUT)), folder / "keys" / "server"
    revoked = Revocation("north", "client:0", asked.node, "2026-11-16T03:04:05Z", "revoked")
    (server / "revoked").mkdir()

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        kind, sender = choices.below(3), BoxKey.generate()
        if kind == 0:
            text = flip(membership.armoured(asked), Random(choices.below(2**32)))
            whole = choices.below(2) == 0
            request.write_bytes(text if whole else membership.armoured(decode(changed_message(asked, choices))))
            membership.read_request(request)
        elif kind == 1:
            box = sender.seal(own.public, changed_message(invited, choices), membership.ABOUT)
            try:
                membership.accept(folder / "north", encode(membership.Invitation("north", sender.public, box)))
            finally:
                (folder / "north" / "party.bin").unlink(missing_ok=True)
        else:
            (server / "revoked" / "north-1.bin").write_bytes(changed_message(revoked, choices))
            read_roll(keys.load(server)[0], server)

    return attempt


# ---------------------------------------------------------------- samples


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...] = (2, 2)
    kind: str = "image"
    classes: tuple[str, ...] = ("cat", "dog")
    vocabulary: int = 0


KINDS = (
    Shape(),
    Shape((3,), "real", ("a", "b", "c")),
    Shape((4,), "tokens", ("yes", "no"), 50),
    Shape((5,), "binary", ("0", "1")),
)


def _samples(name: str) -> Callable[[Path], Attempt]:
    def prepare(folder: Path) -> Attempt:
        def attempt(data: bytes) -> None:
            shape = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
            (folder / name).write_bytes(data[1:])
            x, y, _, _ = read_folder(folder, shape)
            if len(x) != len(y) or x.shape[1:] != shape.shape or not np.isfinite(x).all():
                raise Fault("samples of another shape than agreed, or that are no numbers")
            if len(y) and not 0 <= y.min() <= y.max() < len(shape.classes):
                raise Fault("labels of classes that there are not")

        return attempt

    return prepare


def _npz(shape: Shape, compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    rng = np.random.default_rng(0)
    held = {"x": rng.integers(0, 2, (3, *shape.shape)), "y": np.arange(3) % 2} | arrays
    (np.savez_compressed if compressed else np.savez)(file, **held)
    return file.getvalue()


def archives() -> list[bytes]:
    objects = io.BytesIO()
    np.savez(objects, x=np.array([{}, {}], object), y=np.zeros(2, int))
    return [
        *(bytes([n]) + _npz(shape) for n, shape in enumerate(KINDS)),
        b"\0" + _npz(KINDS[0], True),
        b"\0" + _npz(KINDS[0], y=np.array(["cat", "dog", "cat"])),
        b"\1" + _npz(KINDS[1], x=np.full((3, 3), np.nan)),
        b"\0" + objects.getvalue(),
    ]


def rezipped(data: bytes, random: Random) -> bytes:
    """An archive whose members are changed and packed again, so that checksums hold; or a plain change."""
    if random.random() < 0.3:
        return data[:1] + flip(data[1:], random)
    try:
        with warnings.catch_warnings(), zipfile.ZipFile(io.BytesIO(data[1:])) as archive:
            members = {name: archive.read(name)[:100000] for name in archive.namelist()[:4]}
    except Exception:
        return data[:1] + flip(data[1:], random)
    name = random.choice(list(members) or ["x.npy"])
    body, kind = members.get(name, b""), random.randrange(4)
    if kind == 0:
        number = random.choice(("0", "3", "2", "-1", "2**40", "9" * 18, "()", "1e9", "99999999999999999999"))
        body = body.replace(b"(3,", b"(" + number.encode() + b",", 1)
    elif kind == 1:
        descr = random.choice(("|O", "<f2", "<f16", "<c16", "<U5", "|S4", "<M8[s]", "|V8", ">i8", "|b1", "<u8", "<U0"))
        body = body.replace(b"<i8", descr.encode(), 1)
    elif kind == 2:
        body = flip(body, random)
    else:
        members.pop(name, None)
    if kind < 3:
        members[name] = body
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for inside, content in members.items():
            archive.writestr(inside, content)
    return data[:1] + file.getvalue()


def sheets() -> list[bytes]:
    written = []
    for n, shape in enumerate(KINDS):
        file = io.StringIO()
        writer = csv.writer(file)
        count = int(np.prod(shape.shape))
        writer.writerow([*(f"v{i}" for i in range(count)), "label"])
        for row in range(4):
            writer.writerow([*([row % 2] * count), shape.classes[row % 2]])
        written.append(bytes([n]) + file.getvalue().encode())
    return written


def respread(data: bytes, random: Random) -> bytes:
    cells = (
        b"nan",
        b"inf",
        b"-1",
        b"1e400",
        b"",
        b'"',
        b"0x1",
        b"1_0",
        "\u0661".encode(),
        b"label",
        b"cat",
        b"\0",
        b"\r",
        b"256",
        b"0.5",
    )
    if random.random() < 0.5 or len(data) < 3:
        return data[:1] + flip(data[1:], random)
    lines = data[1:].split(b"\n")
    at = random.randrange(len(lines))
    fields = lines[at].split(b",")
    fields[random.randrange(len(fields))] = random.choice(cells)
    lines[at] = b",".join(fields)
    return data[:1] + b"\n".join(lines)


def _pictures(folder: Path) -> Attempt:
    (folder / "train" / "cat").mkdir(parents=True)

    def attempt(data: bytes) -> None:
        shape = (Shape(), Shape((2, 2, 3)), Shape((2, 2, 1)))[data[0] % 3 if data else 0]
        (folder / "train" / "cat" / "a.png").write_bytes(data[1:])
        x, _, _, _ = read_folder(folder, shape)
        if x.shape[1:] != shape.shape or x.dtype != np.uint8:
            raise Fault("an image of another shape than agreed")

    return attempt


def images() -> list[bytes]:
    from PIL import Image

    written = []
    for n, (mode, form) in enumerate(
        (("L", "PNG"), ("RGB", "PNG"), ("RGB", "JPEG"), ("P", "PNG"), ("1", "PNG"), ("L", "JPEG"))
    ):
        file = io.BytesIO()
        Image.new(mode, (2, 2), 1).save(file, form)
        written.append(bytes([n % 3]) + file.getvalue())
    return written


def _own_data(folder: Path) -> Attempt:
    """Tables and arrays that a simulation reads, by guessed rules or told ones, and what `covey data inspect` says of them."""
    told = (Rules(), Rules(label="label"), Rules(label="v0", client="label"))

    def attempt(data: bytes) -> None:
        first = data[0] if data else 0
        name = ("table.csv", "arrays.npz", "table.tsv", "table.parquet")[first % 4]
        path = folder / name
        path.write_bytes(data[1:])
        inspect(str(path), told[first // 4 % len(told)])

    return attempt


def own_files() -> list[bytes]:
    parquet = sheets()[1][1:]
    return [
        *(bytes([4 * n]) + sheet[1:] for n, sheet in enumerate(sheets()[1:])),
        *(bytes([1]) + archive[1:] for archive in archives()[:3]),
        bytes([2]) + parquet.replace(b",", b"\t"),
        bytes([3]) + b"PAR1" + bytes(20) + b"PAR1",
    ]


def _idx(folder: Path) -> Attempt:
    def attempt(data: bytes) -> None:
        idx.decode(data, folder / "train-images-idx3-ubyte")

    return attempt


def idx_files() -> list[bytes]:
    import gzip

    plain = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 3, 3)) + bytes(18)
    return [plain, gzip.compress(plain, 1, mtime=0), b"\0\0\x08\x01\0\0\0\x05" + bytes(5)]


def _published(folder: Path) -> Attempt:
    """CIFAR's pickles and covey's packed arrays."""
    path = folder / "digits.npz"
    source = Source("digits", "", "image", 2, "", (packed.form("digits", ("0", "1"), ""),), (2, 2))

    def attempt(data: bytes) -> None:
        if data[:1] == b"\0":
            cifar.decode_pickle([data[1:]], b"labels", path)
        else:
            path.write_bytes(data[1:])
            load.decode.__wrapped__(source, "", 0, (path,), ())

    return attempt


def published() -> list[bytes]:
    import pickle

    batch = {b"data": np.zeros((2, cifar.PIXELS), np.uint8)[:, :8], b"labels": [0, 1]}
    plain, turned, labels = np.zeros((2, 2, 2), np.uint8), np.zeros((3, 2, 2, 2), np.uint8), np.zeros(2, int)
    file, other = io.BytesIO(), io.BytesIO()
    np.savez(file, x_train=plain, y_train=labels, x_test=plain, y_test=labels)
    np.savez(other, x_train_diff=turned, y_train=labels, x_test_diff=turned, y_test=labels)
    return [*(b"\0" + pickle.dumps(batch, p) for p in (2, 4)), b"\1" + file.getvalue(), b"\1" + other.getvalue()]


# ---------------------------------------------------------------- HTTP


def _door(folder: Path) -> Attempt:
    guests = door.Guests()

    def attempt(data: bytes) -> None:
        try:
            request = door.Request.read(data)
            again = door.Request.read(request.rewritten().replace(b"HTTP/1.0", b"HTTP/1.1", 1))
            if (again.path, again.length) != (request.path, request.length) or again.rewritten() != request.rewritten():
                raise Fault("Flower would read another request than the door did")
            guests.authenticated(request)
        except door.Refusal as e:
            if e.status not in door.REASONS:
                raise Fault(f"a refusal without a reason: {e.status}") from e
            raise CoveyError("refused") from e
        raise Fault("a request without an admitted key passed")

    return attempt


def requests() -> list[bytes]:
    head = (
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nflwr-public-key: QUFB\r\n"
        b"flwr-signature: QUFB\r\nflwr-timestamp: 2026\r\nContent-Type: application/protobuf\r\n\r\n"
    )
    return [head, b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]


def _pages(folder: Path) -> Attempt:
    """Addresses that a browser may ask `covey ui` for."""
    from covey.ui.server import Site

    small_run(folder / "root" / "a run")
    (folder / "outside.html").write_text("not yours")
    site = Site(folder / "root")

    def attempt(data: bytes) -> None:
        answer = site.answer(data.decode("latin-1"))
        if answer.status >= 500 or b"not yours" in answer.body:
            raise Fault(f"{answer.status}: {answer.body[:200]!r}")
        if answer.status >= 400:
            raise CoveyError("refused")

    return attempt


def addresses() -> list[bytes]:
    return [
        b"/",
        b"/runs.json?seen=0",
        b"/at/a%20run/report.html",
        b"/compare.html?run=a%20run&run=a%20run",
        b"/at/../outside.html",
        b"/at/%2e%2e/outside.html",
        b"/at//etc/passwd",
    ]


SCRATCH = "/dev/shm"  # where there is one: what a target writes is read once


def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="covey-fuzz-", dir=SCRATCH if Path(SCRATCH).is_dir() else None))


def drop(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


CODEC = ("covey.messages",)
TARGETS = (
    Target(
        "codec",
        _codec,
        lambda: [encode(v) for v in values()] + [b"\0" + encode(v) for v in values()],
        modules=CODEC,
        weight=8,
    ),
    Target("codec-trees", _codec_trees, modules=CODEC, longest=300, weight=6),
    Target(
        "experiments",
        _experiments,
        lambda: [t.encode() for t in tables()],
        reworded,
        modules=("covey.config", "covey.experiment"),
        weight=2,
    ),
    Target("assignments", _assignments, assignments, reworded, longest=600, modules=("covey.config",), weight=2),
    Target("run-folders", _run_folders, longest=300, modules=("covey.results", "covey.report"), weight=2),
    Target("checkpoints", _checkpoints, longest=300, modules=("covey.messages", "covey.files"), weight=2),
    Target(
        "keys", _key_folders, longest=300, modules=("covey.deploy.keys", "covey.deploy.membership.inventory"), weight=1
    ),
    Target("membership", _membership, longest=300, modules=("covey.deploy.membership",), weight=1),
    Target("npz", _samples("data.npz"), archives, rezipped, modules=("covey.data.folder",), weight=2),
    Target("csv", _samples("data.csv"), sheets, respread, modules=("covey.data.folder",), weight=2),
    Target("pictures", _pictures, images, modules=("covey.data.folder",), weight=2),
    Target("own-data", _own_data, own_files, respread, modules=("covey.data.own",), weight=2),
    Target("idx", _idx, idx_files, modules=("covey.data.sources.idx",), weight=3),
    Target("published", _published, published, modules=("covey.data.sources",), weight=1),
    Target("door", _door, requests, modules=("covey.deploy.flower.door",), weight=6),
    Target("pages", _pages, addresses, longest=300, modules=("covey.ui",), weight=1),
)
