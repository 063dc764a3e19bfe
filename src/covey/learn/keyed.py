"""Dropout inside a module, drawn from keyed streams: a client's masks depend on its own key, step and sample only.

torch draws dropout from one global generator, so masks would depend on who trains beside whom. While `keyed` lasts, the dropout
functions of `torch.nn.functional` (with them the dropout layers, `nn.MultiheadAttention` and the transformer layers) draw from
a key for each sample of the batch. A mask is cut along its first dimension, so samples must come first in what is dropped:
where they do not, masks are still keyed, but differ between kernels.

What draws otherwise (`torch.rand`, a dropout that was imported by its name) only the loop kernel can key: it seeds torch's
generator before every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from covey import randomness

SITE = 0x2545F4914F6CDD1D  # apart by so much are the streams of two dropouts of one forward pass
SLOTS = 0x1B873593CC9E2D51  # and these from what the step's key draws elsewhere
_PLAIN = ("dropout", "alpha_dropout")
_CHANNELS = ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
_ALPHA = -1.7580993408473766  # what a dropped unit becomes under SELU


def slot_keys(step_keys: Tensor, slots: int) -> Tensor:
    """[n, slots]: a key for every sample of a step's batch."""
    return randomness.bits(step_keys + SLOTS, slots, step_keys.device)


@contextmanager
def keyed(keys: Tensor | None) -> Iterator[None]:
    """Dropout draws from these keys [b] of the batch's samples; None: as torch has it."""
    if keys is None:
        yield
        return
    draw = _Draw(keys)
    replaced = {name: getattr(F, name) for name in (*_PLAIN, *_CHANNELS, "scaled_dot_product_attention")}
    try:
        for name in _PLAIN:
            setattr(F, name, draw.dropping(name.startswith("alpha"), channels=False))
        for name in _CHANNELS:
            setattr(F, name, draw.dropping("alpha" in name, channels=True))
        F.scaled_dot_product_attention = draw.attending(replaced["scaled_dot_product_attention"])
        yield
    finally:
        for name, function in replaced.items():
            setattr(F, name, function)


class _Draw:
    """The masks of one forward pass."""

    def __init__(self, keys: Tensor) -> None:
        self.keys, self.sites = keys, 0

    def kept(self, shape: torch.Size, p: float) -> Tensor:
        """Bool [*shape]."""
        self.sites += 1
        offset = (self.sites * SITE) % 2**63
        rows = len(self.keys) if shape and shape[0] % len(self.keys) == 0 else 1
        words = randomness.bits(self.keys[:rows] + offset, math.prod(shape) // rows, self.keys.device, under_vmap=True)
        kept: Tensor = (words >> 39).to(torch.float32).add(0.5).mul(2.0**-24).view(shape) >= p
        return kept

    def dropping(self, alpha: bool, channels: bool) -> Any:
        def dropped(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            if not training or p == 0:
                return input
            shape = input.shape[:2] + (1,) * (input.dim() - 2) if channels else input.shape
            kept = self.kept(torch.Size(shape), p)
            if not alpha:
                return input * (kept * (1 / (1 - p))) if p < 1 else input * 0
            scale = ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5
            out: Tensor = torch.where(kept, input, _ALPHA) * scale - scale * p * _ALPHA
            return out

        return dropped

    def attending(self, plain: Any) -> Any:
        """Attention with dropped weights, written out: torch's own draws inside."""

        def attend(
            query: Tensor,
            key: Tensor,
            value: Tensor,
            attn_mask: Tensor | None = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            scale: float | None = None,
            enable_gqa: bool = False,
        ) -> Tensor:
            if dropout_p == 0 or enable_gqa:
                out: Tensor = plain(
                    query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
                )
                return out
            scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
            if is_causal:
                seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
                scores = scores.masked_fill(~seen, -math.inf)
            if attn_mask is not None:
                no = attn_mask.dtype == torch.bool
                scores = scores.masked_fill(~attn_mask, -math.inf) if no else scores + attn_mask
            weights = scores.softmax(-1)
            return (weights * (self.kept(weights.shape, dropout_p) * (1 / (1 - dropout_p)))) @ value

        return attend
