"""The loss of a sample as a module, for the kernels that differentiate with autograd."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey import randomness
from covey.learn.flat import Network


class Objective(nn.Module):
    """A network, and beside its last layer a second head where one is asked for; gives each sample's loss.

    Parameters stand in the order of the flat vector: the network's, then the head's weight and bias. Dropout (`keep`,
    a scaled mask) acts on what the last layer reads, so on what the head reads too.
    """

    def __init__(self, network: Network, head_classes: int, share: float, device: torch.device) -> None:
        super().__init__()
        self.net = network.module(device)
        self.share = share
        self.head = None
        if head_classes:
            self.head = nn.Linear(network.features, head_classes, device="meta").to_empty(device=device)

    def forward(self, x: Tensor, y: Tensor, keep: Tensor | None = None, head_y: Tensor | None = None) -> Tensor:
        features = self.net.body(x)
        if keep is not None:
            features = features * keep
        losses = F.cross_entropy(self.net.last(features), y, reduction="none")
        if self.head is None or head_y is None:
            return losses
        return self.share * losses + (1 - self.share) * F.cross_entropy(self.head(features), head_y, reduction="none")


def keep_mask(keys: Tensor, slots: int, features: int, dropout: float) -> Tensor:
    """Scaled dropout masks [n, slots, features]; a slot's mask does not depend on how many slots there are."""
    drawn = randomness.uniforms(keys, slots * features, keys.device).view(len(keys), slots, features)
    return (drawn >= dropout) * (1 / (1 - dropout))


def clipped(factor: Tensor, norms: Tensor, divisors: Tensor, clip: float) -> Tensor:
    """Each sample's share in the batch's mean gradient: weight / b, or less where its norm exceeds the bound.

    `norms` are those of the unweighted loss: min(w, C / ‖∇‖) / b bounds the weighted gradient by C.
    """
    bound = clip / (norms.clamp(min=1e-30) * divisors.clamp(min=1)[..., None])
    return torch.minimum(factor, bound)


@lru_cache(maxsize=16)
def activations(network: Network) -> int:
    """Floats that one sample's forward pass keeps for its backward pass: what limits how many clients fit at once."""
    objective = Objective(network, 0, 1.0, torch.device("cpu"))
    own = {p.data_ptr() for p in objective.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = max(kept.get(tensor.data_ptr(), 0), tensor.numel())
        return tensor

    dtype = torch.int64 if network.kind == "tokens" else torch.float32
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        losses = objective(torch.ones(1, *network.read_shape, dtype=dtype), torch.zeros(1, dtype=torch.int64))
    del losses
    return sum(kept.values())
