"""Whether a reply is one that this algorithm's client can have sent: asked of every reply that came over a real wire.

A silo may be broken, out of date or hostile, and one NaN in a mean is a NaN for everyone. So kind, shapes and numbers are
checked before an algorithm sees a reply, as it declares them: the kinds among its `replies`, the fields by their roles. What
is refused counts as not sent. Of a field without a role only its numbers are checked, unless the message brings a `check`
of its own. What no check can see, such as a well-formed model trained on lies, or noise under the right key, is not refused;
see docs/deployment/trust.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from covey import roles
from covey.algorithms.contract import (
    MASKS,
    Algorithm,
    Declaration,
    Messages,
    Setting,
    awaited,
    declaration,
    public_sealing,
)
from covey.crypto.sealing import sealing
from covey.errors import CoveyError

ADDED = ("sums", MASKS)  # families of encryptions whose vectors a server adds, and so can check


def admit(algorithm: Algorithm, state: Any, setting: Setting, keys: Mapping[str, Any], reply: Any) -> None:
    """Refuses, with a CoveyError that says why, what an honest client of this algorithm cannot have sent in this state."""
    expected = awaited(algorithm, state, setting.encryption)
    if expected and type(reply) not in expected:
        raise CoveyError(f"found a {type(reply).__name__}, expected {_either(expected)}")
    _check(reply, setting, _bounds(declaration(algorithm), setting, keys))


def admit_advice(algorithm: Algorithm, setting: Setting, keys: Mapping[str, Any], advice: Any) -> None:
    """The same of what a client answers to a further question of a round."""
    declared = declaration(algorithm)
    if declared.advises and type(advice) not in declared.advises:
        raise CoveyError(f"found a {type(advice).__name__}, expected {_either(declared.advises)}")
    _check(advice, setting, _bounds(declared, setting, keys))


def _check(message: Any, setting: Setting, bounds: roles.Bounds) -> None:
    roles.check(message, bounds)
    own = getattr(message, "check", None)
    if callable(own):
        own(setting)
        return
    kind: type = type(message)
    known = roles.of(kind)
    for name, value in getattr(message, "__dict__", {"": message}).items():
        if name not in known:
            try:
                roles.refuse_infinite(value)
            except CoveyError as e:
                raise CoveyError(f"{kind.__name__}.{name} {e}") from e


def _bounds(declared: Declaration, setting: Setting, keys: Mapping[str, Any]) -> roles.Bounds:
    clusters, weights = setting.start.shape
    inside = replace(roles.NOTHING_AGREED, clients=setting.clients, clusters=clusters, weights=weights)
    inside = replace(inside, sealed=_sealed_check(declared, keys))
    return replace(inside, part=partial(_check_part, declared.parts, setting, inside))


def _check_part(allowed: Messages, setting: Setting, bounds: roles.Bounds, part: Any) -> None:
    """A message inside a message; deeper than that nothing may stand."""
    if type(part) not in allowed:
        raise CoveyError(f"holds a {type(part).__name__}, expected {_either(allowed) or 'nothing'}")
    _check(part, setting, bounds)


def _sealed_check(declared: Declaration, keys: Mapping[str, Any]) -> Callable[[bytes, int], None]:
    """Sums are checked with the server's public parameters; of other sealed bytes it can see nothing."""
    if declared.sealing not in ADDED or (declared.sealing == MASKS and declared.sealed_with not in keys):
        return _unseen
    return partial(sealing.check_sealed, public_sealing(declared, keys))


def _unseen(sealed: bytes, length: int) -> None:
    return


def _either(kinds: Messages) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
