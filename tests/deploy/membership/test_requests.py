"""Silos that make their own keys: what travels, who can open it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from covey import Experiment
from covey.cli.main import commands
from covey.crypto.openings.boxes import BoxKey
from covey.crypto.signatures import Signer
from covey.deploy import keys
from covey.deploy.membership import requests
from covey.deploy.membership.records import OWN_KEY, SIGNING_KEY
from covey.deploy.membership.roll import read_roll, revocations, revoke
from covey.errors import CoveyError
from covey.messages import decode, encode

NAMES = ["north", "south", "west"]


def experiment(**more: Any) -> Experiment:
    table = {
        "dataset": "digits",
        "clients": 4,
        "clusters": 1,
        "training": {"rounds": 2, "epochs": 1},
        "model": "softmax",
        "algorithm": "fedavg",
    }
    return Experiment.of(table, **more)


def asked(folder: Path, names: list[str] = NAMES) -> list[requests.Request]:
    """Every silo in a folder of its own, and their requests as they come to the authority."""
    (folder / "mail").mkdir(exist_ok=True)
    for name in names:
        requests.ask(folder / name)
        (folder / "mail" / f"{name}.request").write_bytes((folder / name / f"{name}.request").read_bytes())
    return [requests.read_request(folder / "mail" / f"{name}.request") for name in names]


def accepted(folder: Path, name: str) -> str:
    return requests.accept(folder / name, (folder / "keys" / "invitations" / f"{name}.invitation").read_bytes())[1]


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three silos under masks, whose keys nobody has dealt."""
    folder = tmp_path_factory.mktemp("founded")
    keys.make(experiment(encryption="secagg", clients=3), asked(folder), ["localhost"], folder / "keys")
    return folder


def test_no_private_key_leaves_its_silo(founded: Path) -> None:
    prints = {accepted(founded, name) for name in NAMES}
    assert len(prints) == 1  # all silos see one federation
    made = b"".join(path.read_bytes() for path in sorted((founded / "keys").rglob("*")) if path.is_file())
    for name in NAMES:
        party, _ = keys.load(founded / name)
        secrets = [(founded / name / key).read_bytes() for key in (OWN_KEY, SIGNING_KEY)]
        assert party.signing == secrets[1] and party.keys["opening"] == secrets[0]
        assert not any(secret in made or secret.hex().encode() in made for secret in secrets)
        assert (founded / name / "node.key").read_bytes()[100:200] not in made
        server, _ = keys.load(founded / "keys" / "server")
        assert server.known[party.role] == Signer(party.role, party.signing).public
    for path in (founded / "north").iterdir():
        assert path.stat().st_mode & 0o077 == 0 or path.suffix in (".request", ".crt", ".toml") or path.stem == "agreed"
    with pytest.raises(CoveyError, match=r"a silo's folder already.*another federation needs a request"):
        accepted(founded, "north")


def test_a_newcomer_to_a_circle_that_made_its_own_keys_is_refused_in_words(founded: Path, tmp_path: Path) -> None:
    (request,) = asked(tmp_path, ["east"])
    with pytest.raises(CoveyError, match="4 silos for 3 clients"):
        keys.approve(founded / "keys", request)
    wide = tmp_path / "keys"
    keys.make(experiment(encryption="secagg", algorithm={"name": "fedavg", "quorum": 2}), asked(tmp_path), [], wide)
    with pytest.raises(CoveyError, match="open sums together, and 'east' is not among them: make new keys"):
        keys.approve(wide, request)


def test_an_invitation_is_for_one_silo_alone(founded: Path, tmp_path: Path) -> None:
    invitation = (founded / "keys" / "invitations" / "south.invitation").read_bytes()
    requests.ask(tmp_path / "south")  # with other keys
    with pytest.raises(CoveyError, match="a box does not open"):
        requests.accept(tmp_path / "south", invitation)
    with pytest.raises(CoveyError, match="cannot be used"):
        requests.accept(tmp_path / "south", invitation[:-9])
    assert not (tmp_path / "south" / "party.bin").exists()


def test_fingerprints_that_were_read_out(tmp_path: Path) -> None:
    (request,) = asked(tmp_path, ["north"])
    keys.make(experiment(), [request], [], tmp_path / "keys")
    invitation = (tmp_path / "keys" / "invitations" / "north.invitation").read_bytes()
    with pytest.raises(CoveyError, match="exchanged on its way"):
        requests.accept(tmp_path / "north", invitation, "0000 1111 2222 3333 4444 5555 6666 7777")
    party, shared = requests.accept(tmp_path / "north", invitation)
    requests.check_fingerprint(shared.upper().replace(" ", ":"), shared, "the federation's")
    assert len(shared.replace(" ", "")) == 32 and party.role == "client:0"


@pytest.mark.parametrize("change", ["name", "node", "signing", "opening"])
def test_a_request_with_anothers_keys_is_refused(change: str, tmp_path: Path) -> None:
    one, other = asked(tmp_path, ["north", "south"])
    mixed = replace(one, **{change: getattr(other, change)})
    path = tmp_path / "mixed.request"
    path.write_bytes(requests.armoured(mixed))
    with pytest.raises(CoveyError, match="not signed with the keys that it names"):
        requests.read_request(path)
    path.write_bytes(b"-----BEGIN COVEY REQUEST-----\nnonsense")
    with pytest.raises(CoveyError, match="is no request of a silo"):
        requests.read_request(path)


def test_an_invitation_that_keeps_a_roster_from_comparison_is_refused(founded: Path, tmp_path: Path) -> None:
    """Else a coordinator could hand out another roster to each silo, and all would see one fingerprint."""
    (request,) = asked(tmp_path, ["north"])
    server, agreed = keys.load(founded / "keys" / "server")
    stripped = replace(server, name="north", role="client:0", signing=b"", keys={"sealing": server.keys["sealing"]})
    invited = requests.Invited(stripped, agreed, b"", request.node, ["sealing"])
    with pytest.raises(CoveyError, match="keeps 'sealing' from comparison"):
        requests.accept(tmp_path / "north", requests.invitation(request, invited))


def test_an_invitation_that_brings_an_opening_key_is_refused(tmp_path: Path) -> None:
    """Else a coordinator could deal all silos' keys, and all would see one fingerprint; and what approves does not write one."""
    (request,) = asked(tmp_path, ["east"])
    keys.make(experiment(encryption="secagg"), NAMES, [], tmp_path / "keys")
    party, agreed = keys.load(tmp_path / "keys" / "silos" / "north")
    assert "opening" in party.keys
    given = replace(party, signing=b"", name="east")
    invited = requests.Invited(given, agreed, b"", request.node, ["opening"])
    with pytest.raises(CoveyError, match="another opening key than the one that this silo made"):
        requests.accept(tmp_path / "east", requests.invitation(request, invited))
    for change in ({"name": "../../east"}, {"role": "server"}):
        foreign = replace(invited, party=replace(given, **change))  # type: ignore[arg-type]
        with pytest.raises(CoveyError, match="the invitation cannot be used"):
            requests.accept(tmp_path / "east", requests.invitation(request, foreign))
    assert not (tmp_path / "east" / "party.bin").exists()
    with pytest.raises(CoveyError, match="were dealt here, and 'east' has made its own"):
        keys.approve(tmp_path / "keys", request)
    keys.add(tmp_path / "keys", "east")  # its name was not used up


def forged(name: str, node: ec.EllipticCurvePrivateKey, signer: Ed25519PrivateKey, tail: bytes = b"") -> Any:
    """A request in any name, by who holds its keys."""
    public = node.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + tail
    request = requests.Request(name, public, signer.public_key().public_bytes_raw(), BoxKey.generate().public)
    return replace(
        request, proofs=[node.sign(request.content, ec.ECDSA(hashes.SHA384())), signer.sign(request.content)]
    )


def test_a_key_stands_for_one_silo(tmp_path: Path) -> None:
    """With two names for one node key no server would start: Flower takes a key once."""
    node, signer = ec.generate_private_key(ec.SECP384R1()), Ed25519PrivateKey.generate()
    one, path = forged("north", node, signer), tmp_path / "x.request"
    for other in (
        forged("south", node, Ed25519PrivateKey.generate()),
        forged("south", ec.generate_private_key(ec.SECP384R1()), signer),
    ):
        with pytest.raises(CoveyError, match="'south' asks with a key that 'north' has or had"):
            keys.make(experiment(), [one, other], [], tmp_path / "none")
    keys.make(experiment(), [one], [], tmp_path / "keys")
    again = forged("south", node, Ed25519PrivateKey.generate())
    for _ in range(2):
        with pytest.raises(CoveyError, match="that 'north' has or had"):
            keys.approve(tmp_path / "keys", again)
        if (tmp_path / "keys" / "server" / "nodes" / "north.bin").exists():
            revoke(tmp_path / "keys" / "server", "north")  # its key comes back under no other name
    for strange in (
        forged("east", ec.generate_private_key(ec.SECP256R1()), signer),
        forged("east", node, signer, b" and more"),
        forged("../x", node, signer),
        forged("\u0435ast", node, signer),
    ):
        path.write_bytes(requests.armoured(strange))
        with pytest.raises(CoveyError, match=r"not signed with the keys|cannot be a silo's name"):
            requests.read_request(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # of which no more is read than a request has
    with pytest.raises(CoveyError, match="is no request of a silo"):
        requests.read_request(path)


def test_a_revoked_silo_comes_back_with_neither_of_its_keys(tmp_path: Path) -> None:
    """Not under another name with the signing key that it had, nor with one that it gave up in a renewal."""
    first, second, third = (Ed25519PrivateKey.generate() for _ in range(3))
    node = ec.generate_private_key(ec.SECP384R1())
    keys.make(experiment(), [forged("north", node, first)], [], tmp_path / "keys")
    renewal = forged("north", ec.generate_private_key(ec.SECP384R1()), second)
    keys.approve(tmp_path / "keys", replace(renewal, proofs=[*renewal.proofs, first.sign(renewal.content)]))
    revoke(tmp_path / "keys" / "server", "north")
    for kept in (first, second):
        with pytest.raises(CoveyError, match="asks with a key that 'north' has or had"):
            keys.approve(tmp_path / "keys", forged("south", ec.generate_private_key(ec.SECP384R1()), kept))
    keys.approve(tmp_path / "keys", forged("south", ec.generate_private_key(ec.SECP384R1()), third))


@pytest.mark.parametrize("renews", [False, True])
def test_an_approval_that_was_cut_short_is_done_again(
    renews: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every file that it writes; until it is done the present keys of a silo that renews are let in, and none are struck."""
    from covey.deploy.membership import records

    old, new = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    node = ec.generate_private_key(ec.SECP384R1())
    keys.make(experiment(), [forged("north", node, old)], [], tmp_path / "keys")
    request = forged("north" if renews else "south", ec.generate_private_key(ec.SECP384R1()), new)
    if renews:
        request = replace(request, proofs=[*request.proofs, old.sign(request.content)])
    server, _ = keys.load(tmp_path / "keys" / "server")
    before = read_roll(server, tmp_path / "keys" / "server").nodes["north"]
    honest, left = records.write_atomically, 0

    def cut_short(path: Path, data: bytes, mode: int = 0o644) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        honest(path, data, mode)

    for files in range(9):
        left = files
        monkeypatch.setattr(records, "write_atomically", cut_short)
        try:
            keys.approve(tmp_path / "keys", request)
            break
        except KeyboardInterrupt:
            roll = read_roll(server, tmp_path / "keys" / "server")
            pub_written = renews and roll.nodes["north"] != before
            assert pub_written or (roll.nodes["north"] == before and before not in roll.struck)
    monkeypatch.setattr(records, "write_atomically", honest)
    roll = read_roll(server, tmp_path / "keys" / "server")
    assert files >= 3 and roll.party.silos == ({"north": 0} if renews else {"north": 0, "south": 1})
    assert set(roll.party.known) >= {"client:0"} and (before in roll.struck) == renews


def test_an_invitation_that_costs_too_much_is_not_read(
    founded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert requests.INVITATION_BYTES == 1 << 30
    monkeypatch.setattr(requests, "INVITATION_BYTES", 1 << 20)  # a gigabyte takes seconds to read
    (tmp_path / "any.invitation").write_bytes(b"")
    with (tmp_path / "any.invitation").open("wb") as file:
        file.truncate(requests.INVITATION_BYTES + 1)
    outcome = CliRunner().invoke(
        commands(), ["keys", "accept", str(founded / "north"), str(tmp_path / "any.invitation")]
    )
    assert isinstance(outcome.exception, CoveyError) and "is no invitation: it has more than" in str(outcome.exception)
    heavy = encode({"a": [{} for _ in range(1 << 15)]})  # a tree that takes far more memory than its text
    with pytest.raises(CoveyError, match="too many for what it carries"):
        requests.accept(founded / "north", heavy)


def test_a_silo_renews_its_keys_and_nobody_else_does_it_for_it(tmp_path: Path) -> None:
    keys.make(experiment(), asked(tmp_path, ["north", "south"]), [], tmp_path / "keys")
    for name in ("north", "south"):
        accepted(tmp_path, name)
    (tmp_path / "north" / "used.bin").write_bytes(b"what these keys were used for")
    before = keys.load(tmp_path / "north")[0]
    (stranger,) = asked(tmp_path / "mail", ["north"])
    with pytest.raises(CoveyError, match="not signed with its present key"):
        keys.approve(tmp_path / "keys", stranger)
    requests.ask_again(tmp_path / "north")
    assert keys.load(tmp_path / "north")[0] == before  # until it has accepted
    request = requests.read_request(tmp_path / "north" / "north.request")
    agreed = keys.load(tmp_path / "north")[1]
    for other in ({"known": {"server": bytes(32)}}, {"role": "client:1"}):  # of whoever read its request
        foreign = replace(before, signing=b"", **other)  # type: ignore[arg-type]
        invited = requests.Invited(foreign, agreed, (tmp_path / "north" / "ca.crt").read_bytes(), request.node, [])
        with pytest.raises(CoveyError, match="of another federation than this silo's"):
            requests.accept(tmp_path / "north", requests.invitation(request, invited))
    assert keys.load(tmp_path / "north")[0] == before
    keys.approve(tmp_path / "keys", request)
    accepted(tmp_path, "north")
    after = keys.load(tmp_path / "north")[0]
    assert after.role == before.role and after.signing != before.signing
    assert (tmp_path / "north" / "used.bin").read_bytes() == b"what these keys were used for"
    assert not (tmp_path / "north" / "renewal").exists()
    server = keys.load(tmp_path / "keys" / "server")[0]
    assert server.known["client:0"] == Signer("client:0", after.signing).public and len(server.silos) == 2
    (past,) = revocations(tmp_path / "keys" / "server")
    roll = read_roll(server, tmp_path / "keys" / "server")
    assert past.why == "replaced" and len(roll.struck) == 1 and roll.revoked == {}


def test_the_commands_from_request_to_revocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text(
        'dataset = "digits"\nclients = 4\nclusters = 1\nmodel = "softmax"\nalgorithm = "fedavg"\nencryption = "none"\n'
    )

    def covey(*words: str) -> str:
        answer = CliRunner().invoke(commands(), ["keys", *words], catch_exceptions=False)
        assert answer.exit_code == 0
        return answer.output

    (tmp_path / "requests").mkdir()
    for name in ("north", "south"):
        covey("request", name)
        (tmp_path / name / f"{name}.request").rename(tmp_path / "requests" / f"{name}.request")
    said = covey("make", "my.toml", "--requests", "requests", "--out", "keys")
    assert "north.invitation  for the silo north" in said and not (tmp_path / "keys" / "silos").exists()
    assert "is complete" in covey("accept", "north", "keys/invitations/north.invitation")
    fingerprint = covey("request", "east").rpartition("fingerprint ")[2].strip()
    assert "for the silo east" in covey("approve", "keys", "east/east.request", "--fingerprint", fingerprint)
    assert keys.load(tmp_path / "keys" / "server")[0].silos == {"north": 0, "south": 1, "east": 2}
    assert "south (client:1) is revoked since" in covey("revoke", "keys", "south")
    assert keys.load(tmp_path / "keys" / "server")[0].silos == {"north": 0, "east": 2}
    for words, why in {
        ("revoke", "keys", "south"): "was revoked on",
        ("revoke", "keys", "nobody"): "there are east, north",
        ("approve", "keys", "east/east.request"): "not signed with its present key",
    }.items():
        with pytest.raises(CoveyError, match=why):
            covey(*words)
    assert encode(decode((tmp_path / "keys" / "server" / "nodes" / "east.bin").read_bytes()))


def test_a_silo_whose_keys_were_made_for_it_renews_them_itself(tmp_path: Path) -> None:
    """From then on its private keys are its own."""
    keys.make(experiment(encryption="secagg"), [*NAMES, "east"], [], tmp_path / "keys")
    folder = tmp_path / "keys" / "silos" / "north"
    before = keys.load(folder)[0]
    requests.ask_again(folder)
    with pytest.raises(CoveyError, match="never overwritten"):
        requests.ask_again(folder)
    keys.approve(tmp_path / "keys", requests.read_request(folder / "north.request"))
    requests.accept(folder, (tmp_path / "keys" / "invitations" / "north.invitation").read_bytes())
    after, agreed = keys.load(folder)
    assert after.keys == before.keys and after.signing != before.signing
    algorithm = experiment(encryption="secagg").algorithm
    algorithm.check_keys(after.keys, 0, "secagg")
    assert (
        agreed is not None
        and read_roll(keys.load(tmp_path / "keys" / "server")[0], tmp_path / "keys" / "server").struck
    )
