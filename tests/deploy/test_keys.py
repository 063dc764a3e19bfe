"""Keys of a deployment: who gets what, who must not, and what is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from covey import Experiment
from covey.algorithms.contract import own_keys, server_of
from covey.cli.main import commands
from covey.crypto.paillier.paillier import PrivateKey
from covey.crypto.signatures import Signer, Verifier
from covey.deploy import keys
from covey.deploy.agreed import Agreed, agree, digest, experiment_of, network_for, network_of, setting_of
from covey.deploy.membership.certificates import Pair, issue_server, make_authority
from covey.deploy.membership.inventory import inspect
from covey.deploy.membership.records import SECRETS
from covey.deploy.membership.roll import node_keys
from covey.deploy.serve import check_same
from covey.engines.prepare import prepare
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.experiment.deployment import Silos
from covey.messages import decode, encode

NAMES = ["north", "south"]


MINGLEDPIE = {"name": "mingledpie", "threshold": 1}  # of two clusters


def experiment(algorithm: Any = "ifca", **more: Any) -> Experiment:
    table = {
        "dataset": "digits",
        "clients": 4,
        "clusters": 2,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 2, "epochs": 1},
        "model": "softmax",
        "algorithm": algorithm,
    }
    return Experiment.of(table, **more)


MADE = {
    "two servers": experiment("fedcaprivacy", encryption="bfv"),
    "paillier": experiment("fedcaprivacy", encryption="paillier", deployment={"rehearsal": True}),
    "shared key": experiment(MINGLEDPIE, encryption="ckks"),
    "in the clear": experiment("ifca"),
}


@pytest.fixture(scope="module", params=MADE)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("keys") / "out"
    keys.make(MADE[request.param], NAMES, ["fed.example.org", "10.0.0.5"], out)
    return out


@pytest.fixture
def clear(tmp_path: Path) -> Path:
    """Quickly made: nothing is encrypted."""
    keys.make(experiment(), NAMES, [], tmp_path / "out")
    return tmp_path / "out"


def folders(out: Path) -> dict[str, Path]:
    found = {"server": out / "server", **{n: out / "silos" / n for n in NAMES}}
    return found | ({"csp": out / "csp"} if (out / "csp").is_dir() else {})


def secrets_in(material: dict[str, Any]) -> list[bytes]:
    """The bytes that open or sign, as they are inside the algorithm's key material."""
    found = [material["signing"]] if "signing" in material else []
    for text in (material[name] for name in ("opening", "sealing") if name in material):
        scheme, key = text.split(b"\n", 1) if not text.startswith(b"{") else (b"json", text)
        if scheme == b"paillier":
            private = PrivateKey.from_bytes(key[4:])
            found += [int(factor).to_bytes(128, "big") for factor in (private.p, private.q)]
        elif key:
            found += [base64.b64decode(json.loads(key)[name]) for name in ("secret",) if name in json.loads(key)]
    return found


def contents(folder: Path) -> bytes:
    return b"\n".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def occurs(secret: bytes, where: bytes) -> bool:
    """As it is, or written in hexadecimal, base64 or Python; a part from the middle, behind any header, is enough."""
    middle = secret[len(secret) // 3 :]
    forms = [middle[:12], middle[:12].hex().encode(), repr(middle[:12]).encode()[2:-1]]
    forms += [base64.b64encode(middle[i : i + 9]) for i in range(3)]  # one of three begins where base64's groups do
    return any(form in where for form in forms)


def test_every_party_loads_its_own_and_all_agree(made: Path) -> None:
    parties = {name: keys.load(folder) for name, folder in folders(made).items()}
    assert len({digest(agreed) for _, agreed in parties.values()}) == 1
    server, agreed = parties["server"]
    role = server_of(experiment_of(agreed).algorithm)
    assert (server.name, server.role, server.silos) == ("server", role, {"north": 0, "south": 1})
    for name, (party, _) in parties.items():
        if name != "server":
            # what one signs, the other knows by the same key
            assert server.known[party.role] == Signer(party.role, party.signing).public
            assert party.known == {role: Signer(role, server.signing).public}
    assert parties["south"][0].role == "client:1"
    signed = Signer("client:1", parties["south"][0].signing).sign(b"model", "reply", 1)
    assert Verifier(server.known).accept(signed, "reply", 1) == b"model"


def test_secrets_are_where_they_belong_and_nowhere_else(made: Path) -> None:
    issued = keys.read_issued(made / "authority")
    parties = {name: keys.load(folder)[0] for name, folder in folders(made).items()}
    for name, party in parties.items():
        mine = contents(folders(made)[name])
        assert occurs(party.signing, mine)
        for other, theirs in parties.items():
            if other != name:
                assert not occurs(theirs.signing, mine), f"{name} has the signing key of {other}"
                if "signing" in theirs.keys:
                    assert not occurs(theirs.keys["signing"], mine)
        assert not occurs((made / "authority" / "ca.key").read_bytes()[60:200], mine)
    encrypted = experiment_of(keys.load(made / "server")[1]).encryption != "none"
    shared = secrets_in({k: v for k, v in issued.clients.items() if k != "own"})
    assert bool(shared) == encrypted
    assert all(occurs(secret, contents(folders(made)[name])) for secret in shared for name in NAMES)
    assert not any(occurs(secret, contents(made / "server")) for secret in shared)
    if "csp" in parties:  # each opens what is sealed for it, and only that
        opening = secrets_in(parties["csp"].keys)
        assert opening and all(occurs(secret, contents(made / "csp")) for secret in opening)
        for folder in (made / "server", made / "silos", made / "authority"):
            assert not any(occurs(secret, contents(folder)) for secret in opening), folder
        assert not any(occurs(secret, contents(made / "csp")) for secret in shared)


def test_silos_get_what_a_simulated_client_gets(made: Path) -> None:
    issued = keys.read_issued(made / "authority")
    for i, name in enumerate(NAMES):
        party, _ = keys.load(folders(made)[name])
        assert party.keys == own_keys(issued.clients, i)


def test_files_are_for_their_owner_only(made: Path) -> None:
    for path in [made, *made.rglob("*")]:
        mode = path.stat().st_mode & 0o777
        if path.is_dir():
            assert mode == 0o700, path
        elif path.name in SECRETS:
            assert mode == 0o600, path
    assert {p.name for p in made.rglob("*") if p.is_file()} >= set(SECRETS)
    assert (made / "csp").is_dir() == (experiment_of(keys.load(made / "server")[1]).algorithm.name == "fedcaprivacy")


def test_inspection_says_who_can_open_and_shows_no_secret(made: Path) -> None:
    rows = inspect(made)
    encrypted = experiment_of(keys.load(made / "server")[1]).encryption != "none"
    openers = {row.party.split()[0] for row in rows if row.opens}
    expected = {"authority", "north", "south", *(["csp"] if (made / "csp").is_dir() else [])}
    assert openers == (expected if encrypted else set())
    assert {row.party.split()[0] for row in rows} == expected | {"server"} | {"authority"}
    # the same key has the same fingerprint on both sides
    prints = {(row.party.split()[0], row.what): row.fingerprint for row in rows}
    assert prints["north", "node key (ECDSA P-384)"] == prints["server", "public node key of north"]
    assert prints["north", "signing key (Ed25519)"] == prints["server", "public key of client:0"]
    answer = CliRunner().invoke(commands(), ["keys", "inspect", str(made)])
    assert answer.exit_code == 0
    assert ("can open nothing: server" in answer.output) == encrypted
    shown = answer.output.encode() + repr([keys.load(f) for f in folders(made).values()]).encode()
    for folder in folders(made).values():
        party, _ = keys.load(folder)
        assert not any(occurs(secret, shown) for secret in [party.signing, *secrets_in(party.keys)])


def test_built_in_algorithms_describe_all_their_key_material(made: Path) -> None:
    assert not [row for row in inspect(made) if row.what.endswith("' of the algorithm")]


def test_an_own_algorithm_says_what_its_keys_are_and_how_it_is_deployed(tmp_path: Path) -> None:
    own = experiment({**MINGLEDPIE, "name": "support.own_algorithms:Reticent"})
    keys.make(own, NAMES, [], tmp_path / "out")
    rows = {row.what: row for row in inspect(tmp_path / "out" / "server")}
    assert rows["'identities' of the algorithm"].secret  # it does not say, so nobody may see it
    assert rows["'identities' of the algorithm"].opens == "not said by the algorithm"
    assert rows["no encryption: sums in the clear"].opens
    algorithm = experiment_of(keys.load(tmp_path / "out" / "server")[1]).algorithm
    assert (algorithm.name, algorithm.draw, algorithm.history) == ("reticent", "secret", 3)
    check_same(own.table(), tmp_path / "out" / "server")
    with pytest.raises(CoveyError, match="other algorithm"):
        check_same(experiment({**MINGLEDPIE, "rate": 0.25}).table(), tmp_path / "out" / "server")


def test_own_code_that_does_not_say_how_it_draws_secrets_is_named() -> None:
    assert keys.keyed_draws(experiment()) == []
    assert keys.keyed_draws(experiment({**MINGLEDPIE, "name": "support.own_algorithms:Reticent"})) == []
    silent = experiment("support.own_algorithms:Mine", encryption="none")
    assert keys.keyed_draws(silent) == ["support.own_algorithms:Mine"]


def test_nobody_is_said_to_open_nothing_whose_keys_the_algorithm_does_not_describe(tmp_path: Path) -> None:
    own = experiment({"name": "support.own_algorithms:Undescribed"}, encryption="ckks")
    keys.make(own, NAMES, [], tmp_path / "out")
    unsaid = [(row.party.split()[0], row.what) for row in inspect(tmp_path / "out") if row.opens.startswith("not said")]
    vault, single = "'vault' of the algorithm", "'single' of the algorithm"
    silos = [(name, what) for name in NAMES for what in (vault, single)]
    assert unsaid == [("authority", vault), ("authority", f"{single}, of up to 4 silos"), *silos]
    answer = CliRunner().invoke(commands(), ["keys", "inspect", str(tmp_path / "out")])
    assert answer.exit_code == 0 and "can open nothing: server\n" in answer.output  # whose keys are described


# ---------------------------------------------------------------- TLS and Flower's nodes


def handshake(server: Pair, ca: bytes, name: str, folder: Path) -> str:
    """The server's greeting as a client hears it over TLS, after checking the certificate for this name."""
    certificate, key = folder / "c.pem", folder / "k.pem"
    certificate.write_bytes(server.public)
    key.write_bytes(server.private)
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(certificate, key)
    outside = ssl.create_default_context(cadata=ca.decode())
    outside.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()

    def greet() -> None:
        try:
            with inside.wrap_socket(there, server_side=True) as secure:
                secure.sendall(b"hello")
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=greet)
    thread.start()
    try:
        with outside.wrap_socket(here, server_hostname=name) as secure:
            return secure.recv(5).decode()
    finally:
        here.close()
        thread.join()


def test_the_certificate_stands_for_its_hosts_and_no_other(tmp_path: Path) -> None:
    authority = make_authority()
    server = issue_server(authority, ["fed.example.org", "10.0.0.5"])
    for name in ("fed.example.org", "10.0.0.5", "localhost", "127.0.0.1", "::1"):
        assert handshake(server, authority.public, name, tmp_path) == "hello"
    for name in ("other.example.org", "10.0.0.6"):
        with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
            handshake(server, authority.public, name, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, make_authority().public, "localhost", tmp_path)
    # the server's certificate is no authority: what it signs is not believed
    below = issue_server(server, ["fed.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(Pair(below.public + server.public, below.private), authority.public, "fed.example.org", tmp_path)


def test_written_certificates_are_the_ones_that_fit(clear: Path, tmp_path: Path) -> None:
    pair = Pair((clear / "server" / "server.crt").read_bytes(), (clear / "server" / "server.key").read_bytes())
    for folder in folders(clear).values():
        assert handshake(pair, (folder / "ca.crt").read_bytes(), "localhost", tmp_path) == "hello"


def test_flower_reads_the_node_keys(clear: Path) -> None:
    register = pytest.importorskip("flwr.cli.supernode.register", reason="flwr is not installed: covey[deploy]")
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

    known = node_keys(clear / "server")
    assert list(known) == NAMES
    for name in NAMES:
        secret = load_ssh_private_key((clear / "silos" / name / "node.key").read_bytes(), None)
        assert uses_nist_ec_curve(secret.public_key())  # type: ignore[arg-type]
        assert public_key_to_bytes(secret.public_key()) == known[name]  # type: ignore[arg-type]
        assert register.try_load_public_key(clear / "server" / "nodes" / f"{name}.pub") == known[name]


# ---------------------------------------------------------------- adding


def test_a_silo_is_added_by_public_files_alone(clear: Path) -> None:
    before = {p: p.read_bytes() for p in clear.rglob("*") if p.is_file() and p.name != "issued.bin"}
    keys.add(clear, "west")
    assert all(path.read_bytes() == data for path, data in before.items())
    added = {p.relative_to(clear).as_posix() for p in clear.rglob("*") if p.is_file() and p.name != "issued.bin"}
    added -= {p.relative_to(clear).as_posix() for p in before}
    own = {"party.bin", "node.key", "agreed.bin", "experiment.toml", "ca.crt"}
    assert added == {f"silos/west/{n}" for n in own} | {"server/nodes/west.pub", "server/nodes/west.bin"}
    server, west = keys.load(clear / "server")[0], keys.load(clear / "silos" / "west")[0]
    assert server.silos == {"north": 0, "south": 1, "west": 2} and west.role == "client:2"
    assert server.known["client:2"] == Signer("client:2", west.signing).public
    assert not occurs(west.signing, contents(clear / "server"))


def test_a_number_is_never_given_twice(clear: Path) -> None:
    keys.add(clear, "west")
    for end in (".pub", ".bin"):  # the server lets it in no more
        (clear / "server" / "nodes" / f"west{end}").unlink()
    assert "west" not in keys.load(clear / "server")[0].silos
    with pytest.raises(CoveyError, match="given to client 2 before"):
        keys.add(clear, "west")
    keys.add(clear, "east")
    assert keys.load(clear / "silos" / "east")[0].role == "client:3"
    with pytest.raises(CoveyError, match="5 silos for 4 clients"):
        keys.add(clear, "late")


def test_files_that_are_still_being_copied_do_not_stop_the_server(clear: Path) -> None:
    nodes, server = clear / "server" / "nodes", clear / "server"
    public = (nodes / "south.pub").read_bytes()
    for halfway in (lambda: (nodes / "south.pub").unlink(), lambda: (nodes / "south.pub").write_bytes(b"")):
        halfway()
        assert keys.load(server)[0].silos == {"north": 0} and list(node_keys(server)) == ["north"]
    (nodes / "south.pub").write_bytes(public)
    assert keys.load(server)[0].silos == {"north": 0, "south": 1}
    (nodes / "north.bin").rename(nodes / "other.bin"), (nodes / "north.pub").rename(nodes / "other.pub")
    with pytest.raises(CoveyError, match="another name, or a role given twice"):
        keys.load(server)


def test_an_interrupted_addition_leaves_no_number_to_two(clear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(keys, "make_node", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            keys.add(clear, "west")
    keys.add(clear, "east")
    assert keys.load(clear / "server")[0].silos == {"north": 0, "south": 1, "east": 3}


def test_an_added_silo_has_the_keys_of_its_number(tmp_path: Path) -> None:
    keys.make(MADE["two servers"], NAMES, [], tmp_path / "out")
    keys.add(tmp_path / "out", "west")
    server, west = keys.load(tmp_path / "out" / "server")[0], keys.load(tmp_path / "out" / "silos" / "west")[0]
    assert server.keys["known"]["client:2"] == Signer("client:2", west.keys["signing"]).public


def test_a_new_certificate_changes_the_servers_folder_only(clear: Path, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in clear.rglob("*") if p.is_file()}
    keys.renew(clear, ["new.example.org"])
    changed = {p.name for p, data in before.items() if p.read_bytes() != data}
    assert changed == {"server.crt", "server.key"}
    server = clear / "server"
    assert (server / "server.key").stat().st_mode & 0o777 == 0o600
    pair = Pair((server / "server.crt").read_bytes(), (server / "server.key").read_bytes())
    north = (clear / "silos" / "north" / "ca.crt").read_bytes()
    assert handshake(pair, north, "new.example.org", tmp_path) == "hello"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "no silo is named"),
        (["north", "north"], "named twice"),
        (["North"], "cannot be a silo's name"),
        (["../x"], "cannot be a silo's name"),
        (["-x"], "cannot be a silo's name"),
        (["server"], "cannot be a silo's name"),
        (["a" * 41], "cannot be a silo's name"),
        (["a", "b", "c", "d", "e"], "5 silos for 4 clients"),
    ],
)
def test_names_that_are_refused(names: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=says):
        keys.make(experiment(), names, [], tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("host", ["https://fed.example.org", "fed.example.org:9092", "10.0.0.256", "a b", "-x.org", ""])
def test_hosts_that_are_none(host: str, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="no host name or address"):
        keys.make(experiment(), NAMES, [host], tmp_path / "out")


def test_keys_are_never_overwritten_nor_left_half_made(
    clear: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(clear)
    with pytest.raises(CoveyError, match="never overwritten"):
        keys.make(experiment(), NAMES, [], clear)
    assert contents(clear) == before

    def full(*_: object) -> None:
        raise CoveyError("the disk is full")

    monkeypatch.setattr(keys, "_write_silo", full)
    with pytest.raises(CoveyError, match="the disk is full"):
        keys.make(experiment(), NAMES, [], tmp_path / "more")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_folders_that_cannot_be_used(clear: Path, tmp_path: Path) -> None:
    north, south = clear / "silos" / "north", clear / "silos" / "south"
    with pytest.raises(CoveyError, match=r"holds no party\.bin"):
        keys.load(clear)
    (north / "party.bin").chmod(0o640)
    with pytest.raises(CoveyError, match=f"run `chmod 600 {north}/party.bin`"):
        keys.load(north)
    (north / "party.bin").chmod(0o600)
    (north / "node.key").chmod(0o604)
    with pytest.raises(CoveyError, match="chmod 600"):
        keys.load(north)
    (north / "node.key").chmod(0o600)
    whole = (north / "agreed.bin").read_bytes()
    other = encode(dataclasses.replace(decode(whole), kind="binary"))
    for data, says in ((whole[:-9], "cannot be used"), (encode([1]), "holds no Agreed"), (other, "was made for")):
        (north / "agreed.bin").write_bytes(data)
        with pytest.raises(CoveyError, match=says):
            keys.load(north)
    (south / "agreed.bin").unlink()
    with pytest.raises(CoveyError, match="cannot be read: No such file"):
        keys.load(south)
    with pytest.raises(CoveyError, match="authority is not here"):
        keys.add(tmp_path, "west")
    with pytest.raises(CoveyError, match="holds no keys"):
        inspect(tmp_path)
    (clear / "authority" / "ca.key").chmod(0o644)
    for refused in (lambda: keys.add(clear, "west"), lambda: keys.renew(clear, []), lambda: inspect(clear)):
        with pytest.raises(CoveyError, match="chmod 600"):
            refused()


def test_a_deployment_draws_in_secret_and_a_rehearsal_does_not() -> None:
    fedca = experiment("fedcaprivacy", encryption="paillier")
    assert (keys.deployed(fedca).algorithm.draw, keys.deployed(fedca).algorithm.bits) == ("secret", 3072)
    chosen = experiment({"name": "fedcaprivacy", "bits": 4096}, encryption="paillier")
    assert keys.deployed(chosen).algorithm.bits == 4096
    assert keys.deployed(experiment(MINGLEDPIE)).algorithm.draw == "secret"
    assert keys.deployed(experiment()) == experiment()
    again = experiment("fedcaprivacy", encryption="paillier", deployment={"rehearsal": True})
    assert keys.deployed(again) == again
    with pytest.raises(CoveyError, match="a deployment runs once"):
        keys.deployed(experiment(seeds=2))


def test_the_command_line_makes_adds_and_explains(tmp_path: Path) -> None:
    source = tmp_path / "own.toml"
    source.write_text(experiment(MINGLEDPIE).toml())
    runner, out = CliRunner(), tmp_path / "made" / "keys"
    asked = ["keys", "make", str(source), "--silos", "north, south", "--out", str(out), "--rehearsal"]
    answer = runner.invoke(commands(), [*asked, "--set", "seed=7"])
    assert answer.exit_code == 0, answer.output
    assert f"{out / 'silos' / 'south'}  for the silo south" in answer.output
    assert runner.invoke(commands(), ["keys", "add", str(out), "west"]).exit_code == 0
    party, agreed = keys.load(out / "silos" / "west")
    told = experiment_of(agreed)
    assert (party.role, told.seed, told.deployment.rehearsal, told.algorithm.draw) == ("client:2", 7, True, "keyed")
    assert isinstance(runner.invoke(commands(), asked).exception, CoveyError)


# ---------------------------------------------------------------- what is agreed


@pytest.mark.parametrize("algorithm", [MINGLEDPIE, "pqfed", "fedcaprivacy"], ids=str)
def test_what_is_agreed_is_what_the_simulation_prepares(algorithm: str) -> None:
    wanted = experiment(algorithm, model="fcnn", layers={"personal": 0 if algorithm == "fedcaprivacy" else 1}, seed=3)
    agreed = agree(wanted)
    received = decode(encode(agreed))
    assert isinstance(received, Agreed) and digest(received) == digest(agreed)
    _, network, setting = prepare(wanted)
    assert network_of(received) == network
    told = experiment_of(received, {"workers": 1})
    assert told == dataclasses.replace(wanted, engine=told.engine) and told.engine.workers == 1
    found = setting_of(received, told)
    for field in dataclasses.fields(setting):
        ours, theirs = getattr(found, field.name), getattr(setting, field.name)
        if field.name == "public":
            assert ours and theirs and len(theirs[1]) > 0
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        elif isinstance(theirs, torch.Tensor):
            assert torch.equal(ours, theirs), field.name
        else:
            assert ours == theirs, field.name


def test_real_silos_start_as_a_simulation_with_the_same_public_samples(tmp_path: Path) -> None:
    simulated = experiment("ifca", model="fcnn", start={"common": False, "pretrain_epochs": 2})
    federation, _, setting = prepare(simulated)
    data = federation.dataset
    for j, rows in enumerate(federation.public):
        (tmp_path / f"cluster-{j}").mkdir()
        np.savez(tmp_path / f"cluster-{j}" / "data.npz", x=data.x_train[rows], y=data.y_train[rows])
    silos = {"shape": data.x_train.shape[1:], "classes": data.classes, "public": str(tmp_path)}
    real = dataclasses.replace(simulated, dataset="silos", silos=Experiment.of(silos=silos).silos)
    agreed = agree(real)
    assert torch.equal(agreed.start, setting.start) and not torch.equal(agreed.start[0], agreed.start[1])
    assert agreed.public and setting.public and torch.equal(agreed.public[0], setting.public[0])
    assert (agreed.shape, agreed.classes, agreed.kind) == ([8, 8], [*data.classes], "image")
    assert str(tmp_path) not in agreed.experiment  # whose disk it was is nobody's business
    (tmp_path / "cluster-1").rename(tmp_path / "cluster-2")
    with pytest.raises(CoveyError, match="2 clusters need cluster-0 to cluster-1"):
        agree(real)
    without = dataclasses.replace(real, silos=dataclasses.replace(real.silos, public=""))
    assert agree(without).public is None
    assert network_of(agree(without)) == network_of(agreed)


def test_nothing_of_a_clients_samples_is_agreed() -> None:
    wanted = experiment("ifca", partition={"public": 0})
    assert cut(wanted).public == () and agree(wanted).public is None
    tokens = Silos(shape=(5,), kind="tokens", vocabulary=30, classes=("bad", "good"))
    assert network_for(dataclasses.replace(wanted, model="gru"), tokens).vocabulary == 30


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoveyError, match=r"could not be made: (Not a directory|File exists)"):
        keys.make(experiment(), NAMES, [], tmp_path / "file" / "out")


def test_how_silos_read_their_files_must_be_said(tmp_path: Path) -> None:
    """A silo whose files are of another kind would end, and the coordinator wait for it."""
    table = {"dataset": "silos", "clients": 3, "silos": {"shape": [5], "classes": ["a", "b"]}}
    with pytest.raises(CoveyError, match=r"silos.kind is missing.*image .*binary, real .*tokens"):
        keys.check_described(table)
    keys.check_described(table | {"silos": {"kind": "real"}})
    keys.check_described({"dataset": "digits"})
