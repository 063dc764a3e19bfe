"""Membership without a dealer of silos' keys: a silo makes its own, asks with their public halves, and is invited.

    silo         ask        node.key, signing.key and opening.key, which never leave its machine, and NAME.request: public halves,
                            signed with the two that sign, so that nobody asks with another's keys
    authority    invite     NAME.invitation: what the silo needs beside its own keys, in a box that only its opening key opens
    silo         accept     its folder, ready for `covey join`

A request that was exchanged on its way would let somebody else in; an invitation that was, would have the silo train for
somebody else. So both have a fingerprint, of 128 bits, to be compared over a telephone: of a request it stands for the silo's
keys, of an invitation for the federation (authority, server, experiment, and the keys that all silos share), so that it is the
same at all silos.

A silo that is in replaces its node and signing key by asking again, signed with the key that it had. Its opening key is known to
the other silos where sums are opened together, and stays.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from covey.algorithms.contract import declaration
from covey.algorithms.sums import openings
from covey.crypto.openings.boxes import BoxKey, check_public
from covey.crypto.signatures import Signer
from covey.deploy.agreed import Agreed, digest, experiment_of
from covey.deploy.membership.certificates import make_node, registered
from covey.deploy.membership.records import (
    OWN_KEY,
    SIGNING_KEY,
    Party,
    check_name,
    check_private,
    make_folder,
    read_bytes,
    read_foreign,
    read_record,
    record_in,
    refuse_existing,
    write,
)
from covey.errors import CoveyError
from covey.messages import check_fields, encode, message

NODE_KEY = "node.key"
RENEWAL = "renewal"  # in a silo's folder: keys that were asked for and are not in use yet
ABOUT = b"covey invitation 1"
HEAD, FOOT = "-----BEGIN COVEY REQUEST-----", "-----END COVEY REQUEST-----"
CLIENT = re.compile(r"client:[0-9]{1,9}")
REQUEST_BYTES = 8192  # which no request has
INVITATION_BYTES = 1 << 30  # models and public samples are in it
AGAIN = "ask the silo for its file again, as `covey keys request` wrote it"
ASK = "ask for it again"


@message
@dataclass(frozen=True)
class Request:
    """Public halves of a silo's own keys. Whether they are that silo's, only somebody who compares fingerprints knows."""

    name: str
    node: bytes  # ECDSA P-384, in OpenSSH's form
    signing: bytes  # Ed25519
    opening: bytes  # X25519
    proofs: list[bytes] = field(
        default_factory=list
    )  # of the node key, of the signing key, of the one before (renewal)

    @property
    def content(self) -> bytes:
        return b"covey request 1\n" + encode(replace(self, proofs=[]))

    @property
    def renews(self) -> bool:
        return len(self.proofs) == 3


@message
@dataclass(frozen=True)
class Invited:
    """What a silo is given beside its own keys."""

    party: Party  # without a signing key
    agreed: Agreed
    ca: bytes
    node: bytes  # for which keys: a renewal replaces them
    single: list[str]  # key material of the algorithm that other silos have not


@message
@dataclass(frozen=True)
class Invitation:
    name: str
    sender: bytes  # a key that was made for this box alone
    box: bytes


# ---------------------------------------------------------------- the silo


def ask(folder: Path) -> Request:
    """Keys of a silo's own in a new folder, whose name is the silo's, and the request beside them: NAME.request."""
    name = folder.name
    check_name(name)
    refuse_existing(folder)
    make_folder(folder)
    opening = BoxKey.generate()
    write(folder / OWN_KEY, opening.secret, 0o600)
    request = _asked(folder, name, opening.public)
    write(folder / f"{name}.request", armoured(request))
    return request


def ask_again(folder: Path) -> Request:
    """Another node and signing key for a silo that is in; the present ones stay in use until the invitation is accepted."""
    if not (folder / "party.bin").is_file():
        raise CoveyError(f"{folder} holds no party.bin: a silo that is not in yet has nothing to renew")
    check_private(folder)
    party = read_record(folder / "party.bin", Party)
    refuse_existing(folder / RENEWAL)
    make_folder(folder / RENEWAL)
    opening = BoxKey(read_bytes(folder / OWN_KEY)) if (folder / OWN_KEY).is_file() else BoxKey.generate()
    if not (folder / OWN_KEY).is_file():  # of a silo whose keys were all made for it
        write(folder / RENEWAL / OWN_KEY, opening.secret, 0o600)
    request = _asked(folder / RENEWAL, party.name, opening.public)
    old = Ed25519PrivateKey.from_private_bytes(signing_of(folder, party)).sign(request.content)
    request = replace(request, proofs=[*request.proofs, old])
    write(folder / f"{party.name}.request", armoured(request))
    return request


def accept(folder: Path, data: bytes, expected: str = "") -> tuple[Party, str]:
    """Makes a silo's folder whole, or replaces its keys by those that it asked for; (the party, the federation's fingerprint)."""
    check_private(folder)
    if len(data) > INVITATION_BYTES:
        raise CoveyError(f"the invitation has {len(data):,} bytes, and none has more than {INVITATION_BYTES:,}: {ASK}")
    invitation = record_in(data, Invitation, "the invitation", ASK, foreign=True)
    asked = folder / RENEWAL if (folder / RENEWAL).is_dir() else folder
    own = folder / OWN_KEY if (folder / OWN_KEY).is_file() else asked / OWN_KEY
    content = BoxKey(read_bytes(own)).open(invitation.sender, invitation.box, ABOUT)
    invited = _checked(record_in(content, Invited, "the invitation", ASK, foreign=True))
    if invited.node.strip() != _public_node(read_bytes(asked / NODE_KEY)).strip():
        raise CoveyError(f"the invitation is for another request than the one in {asked}: ask for one for the last")
    if invited.party.agreed != digest(invited.agreed) or invited.party.signing:
        raise CoveyError("the invitation's parts do not belong together: ask for it again")
    shared = federation(invited)
    check_fingerprint(expected, shared, "the federation's")
    if asked == folder and (folder / "party.bin").exists():
        raise CoveyError(
            f"{folder} is a silo's folder already: `covey keys request --renew` replaces its keys, and another federation "
            "needs a request, and a folder, of its own"
        )
    if asked != folder:
        _check_same(folder, invited)
    elif openings.OWN in invited.party.keys:  # all silos could be given such keys, under one fingerprint
        raise CoveyError(
            "the invitation brings another opening key than the one that this silo made, and who wrote it could open what silos "
            "seal: use nothing of it, and ask for one for your own key"
        )
    public = {"agreed.bin": encode(invited.agreed), "experiment.toml": invited.agreed.experiment.encode()}
    for name, part in {**public, "ca.crt": invited.ca}.items():
        write(folder / name, part)
    write(folder / "party.bin", encode(invited.party), 0o600)
    if asked != folder:
        for path in sorted(asked.iterdir(), reverse=True):  # the node's key last: until then all can be done again
            path.replace(folder / path.name)
        shutil.rmtree(asked)
    return invited.party, shared


def _check_same(folder: Path, invited: Invited) -> None:
    """Anybody can write to a silo's public key: a renewal that changed the federation would be somebody else's."""
    now, new = read_record(folder / "party.bin", Party), invited.party
    same = (now.name, now.role, now.known, now.agreed) == (new.name, new.role, new.known, new.agreed)
    if not same or encode(now.keys) != encode(new.keys) or read_bytes(folder / "ca.crt") != invited.ca:
        raise CoveyError(
            "the invitation is of another federation than this silo's: use nothing of it, and ask who sent it"
        )


def _checked(invited: Invited) -> Invited:
    """Whoever wrote it holds no key of ours, and may write anything: what is inside of its parts is looked at, too."""
    try:
        check_fields(invited.party)
        check_fields(invited.agreed)
        check_name(invited.party.name)  # which files are called by
        if not CLIENT.fullmatch(invited.party.role):
            raise CoveyError("its role is no silo's")
    except CoveyError as e:
        raise CoveyError(f"the invitation cannot be used ({e}): ask for it again") from e
    return invited


def signing_of(folder: Path, party: Party) -> bytes:
    """A party's signing key, which it may have made itself."""
    return party.signing or read_bytes(folder / SIGNING_KEY)


# ---------------------------------------------------------------- who has the authority


def read_request(path: Path) -> Request:
    """A request whose owner holds the keys that sign in it; else a CoveyError."""
    try:
        text = read_foreign(path, "request of a silo", REQUEST_BYTES, AGAIN).decode("ascii").strip()
        if not (text.startswith(HEAD) and text.endswith(FOOT)):
            raise ValueError
        data = base64.b64decode("".join(text[len(HEAD) : -len(FOOT)].split()), validate=True)
    except (ValueError, binascii.Error):
        raise CoveyError(f"{path} is no request of a silo: {AGAIN}") from None
    request = record_in(data, Request, str(path), AGAIN, foreign=True)
    check_name(request.name)
    try:
        node = load_ssh_public_key(request.node)
        if not isinstance(node, ec.EllipticCurvePublicKey) or len(request.proofs) not in (2, 3):
            raise ValueError
        if not isinstance(node.curve, ec.SECP384R1) or _openssh(node) != request.node.strip():  # one form, as asked for
            raise ValueError
        node.verify(request.proofs[0], request.content, ec.ECDSA(hashes.SHA384()))
        Ed25519PublicKey.from_public_bytes(request.signing).verify(request.proofs[1], request.content)
        check_public(request.opening)
    except (ValueError, UnsupportedAlgorithm, InvalidSignature, CoveyError) as e:
        raise CoveyError(f"{path} is not signed with the keys that it names: {AGAIN}") from e
    return request


def read_requests(folder: Path) -> list[Request]:
    """All *.request files of a folder, by name."""
    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: put the silos' .request files into one")
    requests = [read_request(path) for path in sorted(folder.glob("*.request"))]
    if not requests:
        raise CoveyError(f"{folder} holds no .request file: silos make them with `covey keys request`")
    if renewing := [one.name for one in requests if one.renews]:
        raise CoveyError(f"'{renewing[0]}' asks for a renewal, which is for `covey keys approve`, not for new keys")
    return requests


def check_renewal(request: Request, signing: bytes) -> None:
    """Refuses a renewal that the key before has not signed."""
    try:
        if not request.renews:
            raise InvalidSignature
        Ed25519PublicKey.from_public_bytes(signing).verify(request.proofs[2], request.content)
    except (ValueError, InvalidSignature):
        raise CoveyError(
            f"'{request.name}' is taken, and this request is not signed with its present key: a silo that is in renews its keys "
            "with `covey keys request --renew`; one that has lost them is revoked, and comes back under another name"
        ) from None


def check_new_keys(request: Request, held: Mapping[bytes, str]) -> None:
    """Refuses keys that another party has, or that were given up: one key under two names would be two silos to everybody."""
    for key in (registered(request.node), request.signing):
        if key in held:
            raise CoveyError(
                f"'{request.name}' asks with a key that '{held[key]}' has or had: every silo makes keys of its own, and other "
                "ones after a revocation, with `covey keys request`"
            )


def invitation(request: Request, invited: Invited) -> bytes:
    """For the silo that asked, and nobody else can open it."""
    sender = BoxKey.generate()
    return encode(Invitation(request.name, sender.public, sender.seal(request.opening, encode(invited), ABOUT)))


# ---------------------------------------------------------------- fingerprints


def fingerprint(request: Request) -> str:
    """Of a silo's keys, as both sides see it."""
    return _words(hashlib.sha256(request.content).hexdigest())


def federation(invited: Invited) -> str:
    """Of what must be the same at all silos: authority, server, experiment, and key material that they share.

    What is a silo's alone must be secret as its algorithm describes it: else a roster of keys could be called so, and be another
    one at every silo.
    """
    party, kinds = invited.party, declaration(experiment_of(invited.agreed).algorithm).key_kinds
    public = [
        n for n in invited.single if n in kinds and n in party.keys and not kinds[n](party.keys[n], party.role).secret
    ]
    if public:
        raise CoveyError(f"the invitation keeps '{public[0]}' from comparison, which is public: ask who wrote it")
    common = {name: value for name, value in sorted(party.keys.items()) if name not in invited.single}
    parts = [b"covey federation 1", invited.ca, *(r.encode() + k for r, k in sorted(party.known.items()))]
    parts += [party.agreed.encode(), encode(sorted(invited.single)), encode(common)]
    return _words(hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest())


def check_fingerprint(given: str, actual: str, whose: str) -> None:
    """Nothing is compared where nothing was given."""
    if given and re.sub(r"[\s:-]", "", given).lower() != actual.replace(" ", ""):
        raise CoveyError(
            f"{whose} fingerprint is {actual}, and {given[:80]} was read out: it was exchanged on its way; use nothing of it"
        )


def _words(digits: str) -> str:
    return " ".join(digits[i : i + 4] for i in range(0, 32, 4))


def _asked(folder: Path, name: str, opening: bytes) -> Request:
    """A node and a signing key in the folder, and the request for them."""
    node, signer = make_node(), Signer.generate(name)
    write(folder / NODE_KEY, node.private, 0o600)
    write(folder / SIGNING_KEY, signer.secret, 0o600)
    request = Request(name, node.public, signer.public, opening)
    private = load_ssh_private_key(node.private, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    proofs = [
        private.sign(request.content, ec.ECDSA(hashes.SHA384())),
        Ed25519PrivateKey.from_private_bytes(signer.secret).sign(request.content),
    ]
    return replace(request, proofs=proofs)


def armoured(request: Request) -> bytes:
    """As it can be sent in a mail."""
    text = base64.b64encode(encode(request)).decode()
    return "\n".join([HEAD, *(text[i : i + 64] for i in range(0, len(text), 64)), FOOT, ""]).encode()


def _public_node(private: bytes) -> bytes:
    try:
        key = load_ssh_private_key(private, None)
    except ValueError as e:
        raise CoveyError(f"{NODE_KEY} is no private key ({e}): ask again with `covey keys request`") from e
    public = key.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise CoveyError(f"{NODE_KEY} is a key of another kind: ask again with `covey keys request`")
    return _openssh(public)


def _openssh(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
