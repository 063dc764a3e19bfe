"""The loss of a sample as a module, for the kernels that differentiate with autograd."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey import randomness
from covey.learn.examine import example_inputs
from covey.learn.flat import Network, once, views, with_zeros
from covey.learn.keyed import keyed
from covey.learn.losses import example_targets


class Objective(nn.Module):
    """A network, and beside its last layer a second head where one is asked for; gives each sample's loss.

    `slots` says what stands where in the vector: the network's tensors, the head's weight and bias, and the buffers that a
    client keeps. Dropout (`keep`, a scaled mask) acts on what the last layer reads, so on what the head reads too; dropout
    inside the network draws from `keys`, one for each sample.
    """

    def __init__(self, network: Network, head_classes: int, share: float, device: torch.device) -> None:
        super().__init__()
        self.net = network.module(device)
        self.share, self.loss = share, network.loss
        self.head = None
        head: dict[str, torch.Size] = {}
        if head_classes:
            self.head = with_zeros(nn.Linear(network.features, head_classes, device="meta"), device)
            head = {f"head.{name}": p.shape for name, p in self.head.named_parameters()}
        inner = ({f"net.{name}": shape for name, shape in part.items()} for part in (network.shapes, network.local))
        shapes, local = inner
        self.slots = shapes | head | local
        self.trained = [name for name, p in self.named_parameters() if p.requires_grad]
        self.running = [f"net.{name}" for name in network.facts.running]
        if not network.plain:
            self.train()  # a module may come set to predict
        self._keep: Tensor | None = None
        self._features: Tensor | None = None
        if network.features:
            self.net.get_submodule(network.facts.last).register_forward_pre_hook(self._before_last)

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        keep: Tensor | None = None,
        head_y: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        self._keep = keep
        with keyed(keys):
            outputs = self.net(x)
        features, self._features, self._keep = self._features, None, None
        losses = self.loss.each(outputs.float() if outputs.dtype == torch.bfloat16 else outputs, y)
        if self.head is None or head_y is None:
            return losses
        return self.share * losses + (1 - self.share) * F.cross_entropy(self.head(features), head_y, reduction="none")

    def _before_last(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        features = inputs[0] if self._keep is None else inputs[0] * self._keep
        self._features = features if self.head is not None else None
        return (features,)

    def parameters_of(self, vector: Tensor) -> dict[str, Tensor]:
        """The trained parameters as views of `[D]`: what `functional_call` takes."""
        cut = views(vector, self.slots)
        return {name: cut[name] for name in self.trained}


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


@once
def activations(network: Network) -> int:
    """Floats that one sample's forward pass keeps for its backward pass: what limits how many clients fit at once."""
    objective = Objective(network, 0, 1.0, torch.device("cpu")).eval()
    own = {p.data_ptr() for p in objective.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = max(kept.get(tensor.data_ptr(), 0), tensor.numel())
        return tensor.detach()  # an output that its own graph keeps would never be freed

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        losses = objective(example_inputs(network, 1), example_targets(network.task, 1, network.classes))
    del losses
    return max(1, sum(kept.values()))
