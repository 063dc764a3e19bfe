"""What FedCAPrivacy's participants and business server send each other, signed, and the keys that the key centre issues.

A signature (Ed25519 over canonical bytes: sender, purpose, round, timestamp, nonce, payload) is refused if it is wrong, stale
or was seen before; see `crypto.signatures`. With `encryption = "none"` there are no keys, and nothing is signed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from covey import roles
from covey.crypto.blinded import blinded
from covey.crypto.blinded.integers import to_integers
from covey.crypto.key_kinds import Describe, KeyKind
from covey.crypto.signatures import Envelope, Signer, Verifier
from covey.errors import CoveyError
from covey.messages import message

UPLOAD, CLUSTER = "fedcaprivacy/upload", "fedcaprivacy/cluster"
BS, CSP = "bs", "csp"  # the two servers, as views and keys name them
_YEARS = 10 * 365 * 86400.0


@message
@dataclass(frozen=True)
class Package:
    """What a participant gets: the models of its clusters. Those with the same clusters get the same package."""

    # number of this set of clusters in this round; -1: no model yet, start from the common one
    group: Annotated[int, roles.Identity(bounded=False)]
    clusters: Annotated[list[int], roles.IdentitySet]
    models: Annotated[list[Envelope], roles.Sealed((roles.Model,))]
    # what to divide each by: 1 for a mean, the number of members for a sum
    sizes: Annotated[list[int], roles.GroupSizes]


KEY_KINDS: dict[str, Describe] = {
    "opening": lambda key, role: blinded.opening_kind(key, "the CSP" if role == CSP else "participants"),
    "csp": lambda key, role: blinded.sealing_kind(key, "the CSP"),
    "participants": lambda key, role: blinded.sealing_kind(key, "participants"),
    "signing": lambda key, role: KeyKind(
        "signing key of the algorithm's envelopes (Ed25519)", True, public=Signer(role, key).public
    ),
    "bs": lambda key, role: KeyKind("public envelope key of bs", False),
    "known": lambda known, role: KeyKind(f"public envelope keys of {len(known)} clients", False),
}


def purpose_of(cluster: int, size: int) -> str:
    """What BS signs a model for: its cluster and, so that nobody can alter it on the way, the size behind it."""
    return f"{CLUSTER} {cluster}/{size}"


def issue_keys(scheme: str, clients: int, bits: int, terms: int = 1, fast: bool = False) -> dict[str, dict[str, Any]]:
    """Key material by party; `own` holds what each participant has for itself alone. Nothing is signed in the clear."""
    csp_opening, csp_sealing = blinded.issue(scheme, bits, terms, fast)
    opening, sealing = blinded.issue(scheme, bits, terms, fast)
    common: dict[str, Any] = {"csp": csp_sealing, "opening": opening}
    bs: dict[str, Any] = {"csp": csp_sealing, "participants": sealing}
    if scheme != "none":
        signers = {i: Signer.generate(f"client:{i}") for i in range(clients)}
        server = Signer.generate(BS)
        common |= {"bs": server.public, "own": {i: {"signing": s.secret} for i, s in signers.items()}}
        bs |= {"signing": server.secret, "known": {s.sender: s.public for s in signers.values()}}
    return {"clients": common, "bs": bs, "csp": {"opening": csp_opening, "participants": sealing}}


def seal_model(keys: Mapping[str, Any], me: int, round: int, model: Any) -> Envelope:
    return seal_row(keys, me, round, to_integers(model))


def seal_row(keys: Mapping[str, Any], me: int, round: int, row: NDArray[np.signedinteger[Any]]) -> Envelope:
    """A model in whole numbers."""
    return sign(keys, f"client:{me}", UPLOAD, round, blinded.sealer(keys["csp"]).seal_whole(row))


def pad_model(
    keys: Mapping[str, Any], model: Any, start: Any, random: np.random.Generator | None
) -> NDArray[np.float64]:
    """The model filled up to whole blocks with noise of the size of its update: zeros there would show the CSP which of the
    moved blocks is the last one, with the output biases in it.
    """
    missing = -len(model) % blinded.sealer(keys["csp"]).block
    deviation = max(float(np.std(model - start)), 1e-12)
    return np.concatenate([model, blinded.draw_noise((1, missing), deviation, random)[0]])


def open_package(keys: Mapping[str, Any], package: Package, round: int) -> NDArray[np.float64]:
    """The mean of the models of one's clusters, [d], after checking that BS signed each of them for this round."""
    verifier = verifier_of({"bs": keys.get("bs", b"")}, _YEARS)  # the round dates it: a run may be resumed days later
    opened = []
    for cluster, envelope, size in zip(package.clusters, package.models, package.sizes, strict=True):
        payload = accept(verifier, envelope, purpose_of(cluster, size), round)
        model = _open_model(keys["opening"], payload)
        opened.append(model if size == 1 else model / size)
    total: NDArray[np.float64] = functools.reduce(np.add, opened)  # one after another, as a mean over a stack adds them
    return total / len(opened)


def sign(keys: Mapping[str, Any], sender: str, purpose: str, round: int, payload: bytes) -> Envelope:
    if "signing" not in keys:
        return Envelope(sender, purpose, round, 0, b"", payload, b"")

    return Signer(sender, keys["signing"]).sign(payload, purpose, round)


def accept(verifier: Verifier | None, envelope: Envelope, purpose: str, round: int) -> bytes:
    """The payload, if the signature, purpose and round are right; without encryption purpose and round only."""
    if verifier is None:
        if (envelope.purpose, envelope.round) != (purpose, round):
            raise CoveyError(f"found {envelope.purpose!r} of round {envelope.round}, expected {purpose!r} of {round}")
        return envelope.payload

    return verifier.accept(envelope, purpose, round)


def verifier_of(known: Mapping[str, bytes], max_age: float) -> Verifier | None:
    if not any(known.values()):
        return None

    return Verifier(dict(known), max_age=max_age)


@lru_cache(maxsize=64)
def _open_model(opening: bytes, sealed: bytes) -> NDArray[np.float64]:
    """Participants of one host open the same model once; in a deployment each opens it itself."""
    return blinded.opener(opening).open(sealed)
