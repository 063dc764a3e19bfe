"""What is decided about a network before training: where it starts, which layers are personal, how large it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from covey import randomness
from covey.errors import CoveyError

if TYPE_CHECKING:
    from covey.learn.flat import Network
    from covey.models.choice import Model


def initial(network: Network, key: int) -> Tensor:
    """The starting model [d] of this key: torch's default distributions, drawn from keyed streams, not global state.

    A model with layers beyond linear, convolution, embedding and GroupNorm, or of the user's own, starts as its own code says,
    with torch's generator set to the key; a module that was given as an object starts with its own values, whatever the key.

    Weights and biases of a layer are uniform within ±1/√fan_in, embeddings standard normal, norms 1 and 0. (`nn.GRU`
    draws within ±1/√hidden; the input part of our cell is a linear layer and follows the rule of linear layers.)
    """
    if not network.plain:
        return network.read(network.drawn(key))
    parts: list[Tensor] = []
    for index, (module, name, shape) in enumerate(_parameters(network.architecture)):
        count = math.prod(shape)
        stream = [randomness.key(key, "initial", index)]
        if isinstance(module, nn.GroupNorm):
            parts.append(torch.full((count,), 1.0 if name == "weight" else 0.0))
        elif isinstance(module, nn.Embedding):
            parts.append(randomness.normals(stream, count)[0])
        else:
            assert isinstance(module, nn.Linear | nn.Conv2d)
            bound = 1 / math.sqrt(math.prod(module.weight.shape[1:]))
            parts.append((2 * randomness.uniforms(stream, count)[0] - 1) * bound)
    return torch.cat(parts)


def layers(network: Network) -> list[tuple[str, int, int]]:
    """(name, from, to) of every layer in the flat vector; a layer is a module with parameters of its own."""
    spans: list[tuple[str, int, int]] = []
    position = 0
    for name, shape in network.shapes.items():
        owner, end = name.rpartition(".")[0], position + math.prod(shape)
        if spans and spans[-1][0] == owner:
            spans[-1] = (owner, spans[-1][1], end)
        else:
            spans.append((owner, position, end))
        position = end
    return spans


def personal_mask(network: Network, last: int) -> Tensor:
    """Bool [d], true on the parameters of the last so many layers: those are personal, the rest is shared."""
    every = layers(network)
    if not 0 <= last <= len(every):
        raise CoveyError(
            f"{last} personal layers asked for, {network.title} has {len(every)}: ask for 0 to {len(every)}"
        )
    mask = torch.zeros(network.d, dtype=torch.bool)
    if last:
        mask[every[-last][1] :] = True
    return mask


def parameters(name: Model, input_shape: tuple[int, ...], classes: int, kind: str = "image") -> int:
    """Number of parameters d of a network."""
    from covey.learn.flat import Network

    return Network(name, input_shape, classes, kind).d


def _parameters(module: nn.Module) -> list[tuple[nn.Module, str, torch.Size]]:
    """(owning module, own name, shape) in the order of the flat vector."""
    return [(owner, name, p.shape) for owner in module.modules() for name, p in owner.named_parameters(recurse=False)]
