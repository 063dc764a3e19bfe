"""Where each client keeps its model's running statistics (`layers.buffers = "local"`), work is asked of the machine with the
client's own, and what training made of them stays in its memory. One set: trainings side by side leave the last one's.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from covey.algorithms.contract import Client
from covey.learn.flat import Network
from covey.learn.work import (
    Fisher,
    Gradient,
    GradientNorms,
    Logits,
    Losses,
    SampleGradients,
    SampleLosses,
    Train,
    Work,
)

OWN = "model buffers"  # where a client's memory has them


def with_own(network: Network, me: Client, vectors: Tensor) -> Tensor:
    """`[..., d]` with this client's buffers behind."""
    own = me.memory.get(OWN)
    own = network.fresh_local if own is None else own
    return torch.cat([vectors, own.to(vectors.device).expand(*vectors.shape[:-1], -1)], dim=-1)


def whole(network: Network, me: Client, work: Work) -> Work:
    """The work with this client's buffers behind the models that it names."""
    if isinstance(work, Losses | SampleLosses | Logits):
        return replace(work, models=with_own(network, me, work.models))
    if isinstance(work, Train):
        return replace(work, start=with_own(network, me, work.start))
    if isinstance(work, Gradient | GradientNorms | SampleGradients | Fisher):
        return replace(work, at=with_own(network, me, work.at))
    return work


def kept(network: Network, me: Client, work: Work, result: Tensor) -> Tensor:
    """The part of a result that algorithms see; the client remembers the rest."""
    tail = network.size - network.d
    if isinstance(work, Train):
        me.memory[OWN] = result[-tail:].clone().cpu()
        return result[:-tail]
    return result[: network.d] if isinstance(work, Gradient | Fisher) else result
