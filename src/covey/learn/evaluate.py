"""Losses and outputs of models, with as few large products as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from covey.learn.samples import Samples


class Forward(Protocol):
    """What a kernel offers for evaluation."""

    def logits(self, model: Tensor, x: Tensor) -> Tensor: ...


def outputs(kernel: Forward, samples: Samples, models: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits [k, b, classes], rows [b]) part by part; the inputs of a part are gathered once for all models."""
    for part in torch.split(rows, samples.at_once):
        x = samples.inputs(part)
        yield _of_all(kernel, models, x), part


def _of_all(kernel: Forward, models: Tensor, x: Tensor) -> Tensor:
    """[k, b, classes]. A GPU takes all models in one product where the kernel can: a launch costs more than a small model."""
    together = getattr(kernel, "logits_of_all", None)
    if together is not None and models.is_cuda and len(models) > 1:
        outputs: Tensor = together(models, x)
        return outputs
    return torch.stack([kernel.logits(model, x) for model in models])


def sample_losses(kernel: Forward, samples: Samples, models: Tensor, rows: Tensor) -> Tensor:
    """Loss of each model on each row, [k, n]."""
    parts = []
    for logits, part in outputs(kernel, samples, models, rows):
        k, b, classes = logits.shape
        y = samples.labels(part)
        y = y.expand(k, *y.shape).reshape(k * b, *y.shape[1:])
        losses = samples.network.loss.each(logits.view(k * b, classes), y)
        parts.append(losses.view(k, b))
    return torch.cat(parts, dim=1)


def logits_of(kernel: Forward, samples: Samples, models: Tensor, rows: Tensor) -> Tensor:
    """Outputs of each model on each row, [k, n, classes]."""
    return torch.cat([logits for logits, _ in outputs(kernel, samples, models, rows)], dim=1)


def means(losses: Tensor, sizes: Sequence[int]) -> Tensor:
    """[k, Σ sizes] → the mean over each client's samples, [n, k], on the CPU: a client compares them one by one, a thousand in a
    tenth of the time where a client's lie side by side.
    """
    if len(set(sizes)) == 1:
        return losses.view(len(losses), len(sizes), -1).mean(dim=2).cpu().t().contiguous()
    if losses.device.type == "cpu":
        return torch.stack([part.mean(dim=1) for part in torch.split(losses, list(sizes), dim=1)])
    lengths = torch.tensor(sizes, device=losses.device)
    owner = torch.arange(len(sizes), device=losses.device).repeat_interleave(lengths, output_size=losses.shape[1])
    sums = torch.zeros(len(losses), len(sizes), dtype=torch.float64, device=losses.device)
    sums.index_add_(1, owner, losses.to(torch.float64))
    return (sums / lengths).to(losses.dtype).cpu().t().contiguous()
