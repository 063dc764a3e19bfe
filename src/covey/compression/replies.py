"""Replies with packed vectors: fields that carry a model or a change of one, by their roles.

    encode(vector, random)    -> what crosses the wire in its place: a table of tensors and numbers
    decode(packed, length)    -> the vector as the server reads it; CoveyError where nobody can have packed this
    feedback                  (class variable or field) what was not sent is added to what is sent next

A change is packed as it is, unless its message has a `reference(sent)`: what it would be of a client with nothing new to say, by
what this client was sent and what its reply says beside. A trained model is packed as its difference from the nearest model that
the client was sent, which is nearly always the one that it began with; which one it was goes with it. Whoever saw the reply
unpacked could tell as much.

Noise comes first: a defence has changed the trained model before it is packed, so packing, and what error feedback keeps of former
rounds, is post-processing of what the ledger has priced. Sealed vectors cannot be packed: sums of packed ones mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Algorithm, Client, Setting, declaration
from covey.errors import CoveyError
from covey.messages import check_fields, message

Packed = dict[str, Any]  # of tensors and numbers
MEMORY = "compression"  # where a client keeps what it did not send
VECTORS = (roles.Model, roles.Models, roles.Change, roles.SharedLayers)


class Compression(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def feedback(self) -> bool: ...
    def encode(self, vector: Tensor, random: np.random.Generator) -> Packed: ...
    def decode(self, packed: Packed, length: int) -> Tensor: ...


@message
@dataclass(frozen=True)
class PackedReply:
    """A reply whose vectors are packed: None stands in their place."""

    reply: Any
    packed: dict[str, Packed]  # by field
    references: dict[str, int]  # by field: which of the models that were sent it is the difference from; -1: none


# ---------------------------------------------------------------- what can be packed


def check(compression: Any, algorithm: Algorithm, encryption: str) -> None:
    """Refuses, with a reason, an algorithm whose replies hold no plain vectors, or hold them where they are not found."""
    declared = declaration(algorithm)
    cannot = f"compression = '{compression.name}' cannot work under {declared.name}"
    if encryption != "none" or any(
        isinstance(r, roles.Sealed) for kind in declared.replies for r in roles.declared(kind)
    ):
        raise CoveyError(
            f"{cannot} with encryption = '{encryption}': its replies are sealed, and sums of packed vectors mean nothing; "
            "leave one of them out, or choose an algorithm that sends plain models"
        )
    if not declared.replies:
        raise CoveyError(f"{cannot}, which declares no replies: annotate what it sends with roles (docs/extending.md)")
    for kind in (*declared.replies, *declared.parts):
        inside = kind in declared.parts or not vector_fields(kind)
        if inside and roles.carries(kind, *VECTORS):
            raise CoveyError(
                f"{cannot}: its clients send {kind.__name__} inside other messages, where nothing is packed; leave compression out"
            )
    if not any(vector_fields(kind) for kind in declared.replies):
        raise CoveyError(f"{cannot}: its clients send no models and no changes; leave compression out")


def vector_fields(kind: type) -> list[str]:
    """The fields of a reply that are packed."""
    return [name for name, role in roles.of(kind).items() if isinstance(role, VECTORS)]


# ---------------------------------------------------------------- at the client


def pack(compression: Compression, me: Client, received: Any, reply: Any) -> Any:
    """The reply as it crosses the wire; what is not sent stays in the client's memory."""
    names = [name for name in vector_fields(type(reply)) if isinstance(getattr(reply, name), Tensor)]
    if not names:
        return reply
    kind: Any = type(reply)
    known = roles.of(kind)
    kept: dict[str, Any] = dict(me.memory.get(MEMORY, {}))
    packed: dict[str, Packed] = {}
    references: dict[str, int] = {}
    for name in names:
        vector = getattr(reply, name)
        reference, at = _nearest(_references(known[name], received, reply), vector)
        change = (vector if reference is None else vector - reference).reshape(-1)
        before = kept.get(name)
        if compression.feedback and before is not None and before["reference"] == at:
            change = change + before["rest"].to(change.device)
        packed[name] = compression.encode(change, me.random(f"{MEMORY}:{name}"))
        references[name] = at
        if compression.feedback:
            sent = compression.decode(packed[name], len(change)).to(change.device)
            kept[name] = {"rest": change - sent, "reference": at}
    if compression.feedback:
        me.memory[MEMORY] = kept
    return PackedReply(replace(reply, **dict.fromkeys(names)), packed, references)


def _nearest(candidates: list[Tensor], vector: Tensor) -> tuple[Tensor | None, int]:
    """(the one that this vector is nearest to, which one); None of a change, which is small by itself."""
    if not candidates:
        return None, -1
    far = torch.stack([(vector - one.to(vector.device)).norm() for one in candidates])
    at = int(far.argmin())
    return candidates[at].to(vector.device), at


def _references(role: roles.Role, received: Any, reply: Any) -> list[Tensor]:
    """The models in what a client was sent, in order; of the models of all clusters together they are the only reference."""
    if isinstance(role, roles.Change):
        return [reply.reference(received)] if hasattr(reply, "reference") else []
    if isinstance(role, roles.Models):
        return [value for _, value in roles.carried(received, roles.Models)]
    alike = (roles.SharedLayers,) if isinstance(role, roles.SharedLayers) else (roles.Model, roles.Models)
    every = [value for _, value in roles.carried(received, *alike)]
    return [row for value in every for row in (value if value.dim() == 2 else value[None])]


# ---------------------------------------------------------------- at the server


def unpack(compression: Compression | None, setting: Setting, sent: Any, reply: Any) -> Any:
    """The reply as the algorithm reads it. `sent`: what this client got. Refuses what nobody can have packed."""
    if compression is None or not isinstance(reply, PackedReply):
        if compression is not None and vector_fields(type(reply)):
            raise CoveyError(f"found a {type(reply).__name__} with plain vectors, expected them packed")
        return reply
    check_fields(reply)
    kind: Any = type(reply.reply)
    if not vector_fields(kind):
        raise CoveyError(f"found a packed {kind.__name__}, which has nothing to pack")
    known: Mapping[str, roles.Role] = roles.of(kind)
    if not isinstance(reply.packed, Mapping) or set(reply.packed) != set(vector_fields(kind)):
        raise CoveyError(f"found a {kind.__name__} with other packed fields than {', '.join(vector_fields(kind))}")
    vectors = {name: _unpacked(compression, setting, sent, known[name], reply, name) for name in reply.packed}
    return replace(reply.reply, **vectors)


def _unpacked(
    compression: Compression, setting: Setting, sent: Any, role: roles.Role, reply: PackedReply, name: str
) -> Tensor:
    try:
        candidates = _references(role, sent, reply.reply)
    except Exception as e:  # of what a hostile silo says beside
        raise CoveyError(f"{name} cannot be unpacked: {type(e).__name__}") from e
    at = reply.references.get(name)
    if not isinstance(at, int) or not (0 <= at < len(candidates) if candidates else at == -1):
        raise CoveyError(f"{name} is the difference from model {at!r}, and {len(candidates)} were sent")
    reference = candidates[at] if candidates else None
    shape = (setting.start.shape[1],) if reference is None else tuple(reference.shape)
    length = int(np.prod(shape))
    try:
        change = compression.decode(reply.packed[name], length)
    except CoveyError as e:
        raise CoveyError(f"{name} cannot be unpacked: it {e}") from e
    except Exception as e:  # of what a hostile silo packed, under somebody's own compression
        raise CoveyError(f"{name} cannot be unpacked: {type(e).__name__}") from e
    if not isinstance(change, Tensor) or change.dtype != torch.float32 or tuple(change.shape) != (length,):
        raise CoveyError(f"{name} unpacks to something else than {length} float32 numbers")
    vector = change.to(setting.start.device).view(shape)
    return vector if reference is None else reference.to(vector.device) + vector
