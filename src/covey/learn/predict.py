"""What models say of new samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits, SampleLosses
from covey.metrics.totals import CLASSES, predictions


def probabilities(
    network: Network, models: Tensor, weights: Tensor | None, x: NDArray[Any], device: str = "cpu"
) -> NDArray[np.float32]:
    """[n, outputs] of the only model of [m, d], or of the mixture of all by `weights` [m].

    Probabilities of classes, or of each label, or the numbers themselves.
    """
    machine = Machine(network, checked(network, x), blank(network, len(x)), device=device)
    (raw,) = machine.compute([Job(torch.arange(len(x)), 0, Logits(models))])  # [m, n, outputs]
    targets = torch.zeros(0)
    shares = None if weights is None else weights.to(raw.device, raw.dtype)
    return predictions(network.task, raw, targets, shares).probabilities()


def losses(network: Network, models: Tensor, x: NDArray[Any], y: NDArray[Any], device: str = "cpu") -> Tensor:
    """Mean loss of each model [m] on samples with targets."""
    machine = Machine(network, checked(network, x), y, device=device)
    (each,) = machine.compute([Job(torch.arange(len(x)), 0, SampleLosses(models))])
    return each.mean(1).cpu()


def checked(network: Network, x: NDArray[Any]) -> NDArray[Any]:
    """Samples of the shape and type that the network was trained on."""
    x = np.asarray(x)
    if x.ndim != len(network.input_shape) + 1 or tuple(x.shape[1:]) != tuple(network.input_shape) or not len(x):
        raise CoveyError(
            f"samples of the shape {list(x.shape)} were given, the model reads [n, "
            f"{', '.join(map(str, network.input_shape))}] with at least one: reshape them, or wrap a single one in a list"
        )
    if x.dtype.kind not in "buif":
        raise CoveyError(f"samples of the type {x.dtype} were given, the model reads numbers: convert them")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x.reshape(len(x), math.prod(x.shape[1:]))))[0][0])
        raise CoveyError(f"sample {row} holds a number that is infinite or none: fill or drop it")
    if network.kind == "tokens" and (x.dtype.kind == "f" or x.min() < 0 or x.max() >= network.vocabulary):
        raise CoveyError(
            f"tokens must be whole numbers from 0 to {network.vocabulary - 1}: encode them as the training data"
        )
    if network.kind == "image" and x.dtype != np.uint8 and x.max() > 1.5:
        raise CoveyError(
            f"pixels up to {x.max():g} of the type {x.dtype} were given: the model reads bytes (uint8, 0 to 255), or floats from "
            "0 to 1"
        )
    return x if x.dtype == np.uint8 or network.kind == "tokens" else x.astype(np.float32)


def blank(network: Network, count: int) -> NDArray[Any]:
    """Targets for where there are none."""
    if network.task == CLASSES:
        return np.zeros(count, np.int64)
    return np.zeros((count, network.classes), np.float32)
