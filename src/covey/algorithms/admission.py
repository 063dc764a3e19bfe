"""Whether a reply is one that this algorithm's client can have sent: asked of every reply that came over a real wire.

A silo may be broken, out of date or hostile, and one NaN in a mean is a NaN for everyone. So kind, shapes and numbers are
checked before an algorithm sees a reply: what is refused counts as not sent. What no check can see, such as a
well-formed model trained on lies, or noise under the right key, is not refused; see docs/deployment/trust.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from covey.algorithms.contract import Algorithm, Setting
from covey.errors import CoveyError

Check = Callable[[Any, Setting, Mapping[str, Any]], None]
LARGEST_COUNT = 10**12


def admit(algorithm: Algorithm, setting: Setting, keys: Mapping[str, Any], reply: Any) -> None:
    """Refuses, with a CoveyError that says why, what an honest client of this algorithm cannot have sent."""
    kind = type(reply).__name__
    expected = REPLIES.get(algorithm.name)
    if expected is not None and algorithm.name == "pqfed":  # in its training rounds it passes on another's replies
        expected += REPLIES.get(algorithm.under.name, ())  # type: ignore[attr-defined]
    if expected is not None and kind not in expected:
        raise CoveyError(f"found a {kind}, expected {' or '.join(expected)}")
    own = getattr(reply, "check", None)  # an algorithm of the user's own may bring its check along
    if kind in FIELDS:
        for name, check in FIELDS[kind].items():
            try:
                check(getattr(reply, name), setting, keys)
            except CoveyError as e:
                raise CoveyError(f"{kind}.{name} {e}") from e
    elif callable(own):
        own(setting)
    else:
        _finite(reply, setting, keys)


def _numbers(value: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        raise CoveyError(f"is a {getattr(value, 'dtype', type(value).__name__)}, expected float32 numbers")
    if tuple(value.shape) != shape:
        raise CoveyError(f"has the shape {list(value.shape)}, expected {list(shape)}")
    if not bool(torch.isfinite(value).all()):
        raise CoveyError("holds a number that is infinite or none")


def _model(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    _numbers(value, (setting.start.shape[1],))


def _models(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    _numbers(value, tuple(setting.start.shape))


def _per_cluster(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    _numbers(value, (setting.clusters,))
    if bool((value < 0).any()):
        raise CoveyError("holds a negative weight")


def _rows(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    if not isinstance(value, Tensor) or value.ndim != 2 or min(value.shape) < 1:
        raise CoveyError("is no table of rows")
    _numbers(value, tuple(value.shape))


def _count(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST_COUNT:
        raise CoveyError(f"is {value!r}, expected a positive number of samples")


def _cluster(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < setting.clusters:
        raise CoveyError(f"is {value!r}, expected a cluster from 0 to {setting.clusters - 1}")


def _identities(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    if not isinstance(value, list) or not 0 < len(value) == len(set(map(str, value))):
        raise CoveyError(f"is {value!r}, expected a list of different clusters")
    for one in value:
        _cluster(one, setting, keys)


def _share(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    if not isinstance(value, float | int) or not 0 <= value <= 1:
        raise CoveyError(f"is {value!r}, expected a number from 0 to 1")


def _sealed(value: Any, length: int, keys: Mapping[str, Any]) -> None:
    from covey.crypto.sealing import sealing

    if not isinstance(value, bytes):
        raise CoveyError(f"is a {type(value).__name__}, expected sealed bytes")
    if sealing.Label.read(value).terms != 1:
        raise CoveyError("claims to be a sum of several vectors")
    sealing.mixer(keys["sealing"], 1, length).add(value, [0])  # scheme, parameters, key, length, digest, residues


def _sealed_with_indicator(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    _sealed(value, setting.start.shape[1] + setting.clusters, keys)


def _blocks(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    if not isinstance(value, list) or len(value) != setting.clusters:
        raise CoveyError(f"is not a list of {setting.clusters} blocks")
    for one in value:
        _sealed(one, setting.start.shape[1] + 1, keys)


def _parts(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    """Replies of the algorithm underneath, by target; no deeper than that."""
    if not isinstance(value, dict) or not all(type(i) is int and 0 <= i < setting.clients for i in value):
        raise CoveyError("is not a table of replies by target")
    for one in value.values():
        if type(one).__name__ not in FIELDS or type(one).__name__ == "Turns":
            raise CoveyError(f"holds a {type(one).__name__}")
        for name, check in FIELDS[type(one).__name__].items():
            check(getattr(one, name), setting, keys)


def _finite(value: Any, setting: Setting, keys: Mapping[str, Any]) -> None:
    """All that can be said of a message of the user's own: its numbers are numbers."""
    if isinstance(value, Tensor):
        bad = value.is_floating_point() and not bool(torch.isfinite(value).all())
    else:
        bad = isinstance(value, float) and not math.isfinite(value)
    if bad:
        raise CoveyError("holds a number that is infinite or none")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for one in inner or getattr(value, "__dict__", {}).values():
        _finite(one, setting, keys)


FIELDS: dict[str, dict[str, Check]] = {
    "Done": {},
    "Idle": {},
    "LocalModel": {"model": _model, "samples": _count},
    "ControlledChange": {"model": _model, "variate": _model},
    "ModelChange": {"change": _model, "samples": _count},
    "ClusterUpdate": {"model": _model, "cluster": _cluster, "samples": _count},
    "SoftUpdate": {"model": _model, "importance": _per_cluster, "samples": _count},
    "TrainedComponents": {"models": _models, "samples": _count},
    "MingledUpdate": {"identities": _identities, "sealed": _sealed_with_indicator},
    "RoutedUpdate": {"blocks": _blocks},
    "NoisyFeatures": {"rows": _rows},
    "Judgement": {"accuracy": _share},
    "Turns": {"parts": _parts},
    "Envelope": {},  # its signature, purpose, round and payload are the business server's to check
}
REPLIES: dict[str, tuple[str, ...]] = {
    "local": ("Done",),
    "fedavg": ("LocalModel",),
    "fedprox": ("LocalModel",),
    "feddyn": ("LocalModel",),
    "scaffold": ("ControlledChange",),
    "sattler": ("ModelChange",),
    "ifca": ("ClusterUpdate",),
    "fedsoft": ("SoftUpdate",),
    "fedem": ("TrainedComponents",),
    "mingledpie": ("MingledUpdate",),
    "routing": ("RoutedUpdate",),
    "fedcaprivacy": ("Envelope",),
    "pqfed": ("NoisyFeatures", "Turns", "Judgement", "Idle"),
}
