"""Roles of what its receiver cannot read, and of messages in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from covey.errors import CoveyError
from covey.roles.role import Bounds, Role

# ---------------------------------------------------------------- sealed, and messages in messages


@dataclass(frozen=True)
class Sealed(Role):
    """A vector that only `opened_by` can open, and what is inside."""

    words = "a sealed vector"
    inside: tuple[type[Role], ...]
    opened_by: str = "clients"  # the holders of the opening key, as keys name parties

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, bytes):
            raise CoveyError(f"is a {type(value).__name__}, expected sealed bytes")
        bounds.sealed(value, sum(role().numbers(bounds) for role in self.inside))


@dataclass(frozen=True)
class SealedBlocks(Sealed):
    """One sealed vector for every cluster, all but one of zeros: what is sent is the same whatever the identity."""

    words = "a sealed vector for every cluster"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or len(value) != bounds.clusters:
            raise CoveyError(f"is not a list of {bounds.clusters} blocks")
        for one in value:
            super().check(one, bounds)


@dataclass(frozen=True)
class SealedSums(Sealed):
    """Sums of sealed vectors, as the server sends them back."""

    words = "sealed sums"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not all(isinstance(one, bytes) for one in value):
            raise CoveyError("is not a list of sealed sums")


class Boxes(Role):
    """What clients send each other through the server: each box opens with one client's own key."""

    words = "boxes between clients"

    def check(self, value: Any, bounds: Bounds) -> None:
        if value is None:  # clients have nothing to say to each other
            return
        boxes = value.values() if isinstance(value, dict) else [value] if isinstance(value, bytes) else value
        if not isinstance(value, list | dict | bytes) or not all(isinstance(box, bytes) for box in boxes):
            raise CoveyError("is not a list of boxes")


class BlindedShares(Role):
    """Shares of keys of one round under pads: uniform residues to whoever does not hold the pads."""

    words = "blinded shares of keys"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not all(isinstance(one, bytes) for one in value):
            raise CoveyError("is not a list of shares")


class MaskShares(Role):
    """Shares of the seeds of masks that do not cancel in a sum, by the client whose masks they are."""

    words = "shares of masks"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, dict) or not all(
            type(i) is int and 0 <= i < bounds.clients and isinstance(one, bytes) for i, one in value.items()
        ):
            raise CoveyError("is not a table of shares by client")


class Groups(Role):
    """Which clients are in which sum: who showed what, where clients show sets of clusters."""

    words = "the groups of clients"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
            raise CoveyError("is not a list of groups")
        for group in value:
            if len(set(map(str, group))) != len(group) or not all(
                type(i) is int and 0 <= i < bounds.clients for i in group
            ):
                raise CoveyError(f"holds a group that is no set of clients below {bounds.clients}")


class Payload(Role):
    """Bytes that their sender signed. What is in them is for the receiver to open and to check: nothing is said of it."""

    words = "signed bytes"

    def check(self, value: Any, bounds: Bounds) -> None:
        if type(value) is not bytes:
            raise CoveyError(f"is a {type(value).__name__}, expected bytes")


class Part(Role):
    """A message inside a message."""

    words = "another message"

    def check(self, value: Any, bounds: Bounds) -> None:
        bounds.part(value)


class Parts(Role):
    """Messages by client."""

    words = "other messages"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, dict) or not all(type(i) is int and 0 <= i < bounds.clients for i in value):
            raise CoveyError("is not a table of replies by target")
        for one in value.values():
            bounds.part(one)
