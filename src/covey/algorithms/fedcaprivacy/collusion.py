"""What FedCAPrivacy's two servers read who break their promise not to collude: everybody's model, in every round.

BS has each participant's upload with its name on it, CSP the key that opens it. What a participant began from they need not open:
a package names its receiver's clusters, and the mean of a cluster is the mean of the models of those who are served by it.
For attacks only: no party of the protocol runs this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Setting
from covey.algorithms.fedcaprivacy.envelopes import BS, Package
from covey.crypto.blinded import blinded
from covey.crypto.signatures import Envelope
from covey.messages import message


@message
@dataclass(frozen=True)
class OpenedPackage:
    """What a participant began from."""

    model: Annotated[Tensor, roles.Model]  # [d]


@message
@dataclass(frozen=True)
class OpenedRow:
    """What it returned."""

    model: Annotated[Tensor, roles.Model]  # [d]


def opened_together(
    opening: bytes, setting: Setting, memory: dict[str, Any], round: int, sender: str, receiver: str, message: Any
) -> list[tuple[str, str, Any]]:
    """An upload as two messages, what its sender began from and what it returned; packages wait until all of a round are sent,
    since they tell together who was averaged. What passes between the servers stays as it is.

    `memory` holds of this round the packages' clusters and the models, and the means of clusters as they were last averaged.
    """
    if memory.get("round") != round:
        memory["before"] = memory.get("models", {})
        memory |= {"round": round, "models": {}, "clusters": {}}
    if isinstance(message, Package) and receiver.startswith("client:"):
        memory["clusters"][receiver] = list(message.clusters)
        return []
    if not isinstance(message, Envelope) or not sender.startswith("client:"):
        return [(sender, receiver, message)]
    means = memory.setdefault("means", {})
    if memory["before"]:
        means |= cluster_means(memory["before"], memory["clusters"])
        memory["before"] = {}
    own = [means[k] for k in memory["clusters"].get(sender, ()) if k in means]
    start = torch.stack(own).mean(0) if own else setting.one_start().cpu()
    opened = blinded.opener(opening).open(message.payload)[: setting.start.shape[1]]
    model = torch.from_numpy(opened).to(torch.float32)
    memory["models"][sender] = model
    return [(BS, sender, OpenedPackage(start)), (sender, receiver, OpenedRow(model))]


def cluster_means(models: Mapping[str, Tensor], clusters: Mapping[str, list[int]]) -> dict[int, Tensor]:
    """Cluster -> the mean of the models of those who took part in the last round and are served by it now."""
    served: dict[int, list[Tensor]] = {}
    for name, model in models.items():
        for k in clusters.get(name, ()):
            served.setdefault(k, []).append(model)
    return {k: torch.stack(rows).double().mean(0).float() for k, rows in served.items()}
