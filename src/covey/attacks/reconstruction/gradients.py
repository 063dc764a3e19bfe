"""Samples by optimisation: Geiping et al., Inverting Gradients – How easy is it to break privacy in federated learning?,
NeurIPS 2020; over local steps as in Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022.

The attacker trains pictures of its own from the model that the client got, by the client's plan, and changes them until their
update points where the client's does: cosine distance, plus the total variation that pictures have little of. Labels come first,
from the change of the last layer's biases (as Zhao, Mopuri, Bilen, iDLG, 2020, for one sample; here for batches). It knows plan
and number of samples, not the order of batches; the one it takes is its own. Momentum, decay and the like are not simulated.

Works for a handful of samples and a few steps, and fails beyond: it says so instead of trying.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from covey.attacks.reconstruction.images import Floats, pixels
from covey.attacks.reconstruction.inversion import Inversion
from covey.attacks.uploads import Upload
from covey.errors import CoveyError
from covey.learn.flat import views
from covey.learn.objective import Objective
from covey.learn.samples import Samples
from covey.randomness import key

STEPS = 64  # local steps that are unrolled, at most


@dataclass
class GradientInversion(Inversion):
    """Pictures whose training gives the client's update."""

    name: ClassVar[str] = "gradient_inversion"
    label: ClassVar[str] = "Gradient inversion"
    title: ClassVar[str] = "pictures that are changed until their update is the client's (Geiping et al. 2020)"

    most: int = 8  # samples of a client, beyond which it does not try
    iterations: int = 300
    restarts: int = 3  # from random pictures; what explains the update best is kept
    smooth: float = 0.001  # weight of the total variation
    lr: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.most, self.iterations, self.restarts) < 1 or not (self.lr > 0 and self.smooth >= 0):
            raise CoveyError(
                f"attack '{self.name}': most, iterations and restarts are at least 1, lr is above 0 and smooth not negative"
            )

    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        return {"clients": 2}

    def unfit(self) -> str:
        network = self.known.network
        usual = network.plain and network.task == "classes"
        return super().unfit() or ("" if usual else "a network that is not covey's own, or tells no classes apart")

    def too_much(self, samples: int) -> str:
        steps = self.known.setting.plan.steps_for(samples) if samples else 0
        if not samples:
            return "replies that do not say how many samples they are of"
        if samples > self.most:
            return f"clients of {samples} samples: it tries up to {self.most} (attack's `most`)"
        return f"{steps} local steps: it unrolls up to {STEPS}" if steps > STEPS else ""

    def nothing(self, why: str) -> Any:
        tried = [words for _, _, samples in self.uploads() if (words := self.too_much(samples))]
        return super().nothing(tried[0] if tried else why)

    def recovered(self, seen: Upload, samples: int) -> Floats:
        network = self.known.network
        if self.too_much(samples):
            return np.zeros((0, *network.input_shape, 1)[: 4 if len(network.input_shape) == 2 else -1])
        observed, start = seen.change, seen.start[0]
        labels = self.labels(observed, start, samples)
        objective = Objective(network, 0, 1.0, torch.device("cpu"))
        chance = torch.Generator().manual_seed(key(self.known.setting.seed, "inversion", samples) % 2**31)
        tried = [
            self._fitted(torch.rand(samples, *network.read_shape, generator=chance), labels, start, observed, objective)
            for _ in range(self.restarts)
        ]
        _, x = min(tried, key=lambda one: one[0])  # by what the attacker sees: how well it explains the update
        return pixels(np.asarray(self._pictures(x).double().numpy()))

    def _fitted(
        self, x: Tensor, y: Tensor, start: Tensor, observed: Tensor, objective: Objective
    ) -> tuple[float, Tensor]:
        """(what is left of the distance, the pictures)"""
        x.requires_grad_()
        optimiser = torch.optim.Adam([x], lr=self.lr)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.iterations, self.lr / 100)
        left = 1.0
        for _ in range(self.iterations):
            moved = self._trained(x, y, start, objective) - start
            distance = 1 - F.cosine_similarity(moved, observed, dim=0)
            (x.grad,) = torch.autograd.grad(distance + self.smooth * self._variation(x), x)
            optimiser.step()
            decay.step()
            left = float(distance.detach())
            with torch.no_grad():
                x.clamp_(0, 1)
        return left, x.detach()

    def _trained(self, x: Tensor, y: Tensor, start: Tensor, objective: Objective) -> Tensor:
        """Where the plan's steps on these samples lead from `start`, batches in order; differentiable."""
        plan, model = self.known.setting.plan, start.clone().requires_grad_()
        for step in range(plan.steps_for(len(x))):
            rows = slice(*plan.span(step, len(x)))
            losses = functional_call(objective, views(model, objective.slots), (x[rows], y[rows]))
            (gradient,) = torch.autograd.grad(losses.mean(), model, create_graph=True)
            model = model - plan.lr * gradient
        return model

    def labels(self, change: Tensor, start: Tensor, samples: int) -> Tensor:
        """A label for each sample, in order, with p as the model says of public samples."""
        network, plan = self.known.network, self.known.setting.plan
        bias = list(network.unflatten(change).values())[-1].double()
        expected = self._predicted(start).double()
        counts = label_counts(bias.numpy(), expected.numpy(), plan.lr * plan.steps_for(samples), samples)
        return torch.from_numpy(np.repeat(np.arange(len(counts)), counts))

    def _predicted(self, start: Tensor) -> Tensor:
        """Mean probabilities [classes] over the public samples."""
        network = self.known.network
        rows = torch.from_numpy(np.concatenate([p for n, p in self.known.where.items() if n.startswith("public")]))
        samples = Samples(network, self.known.x, self.known.y, torch.device("cpu"))
        module = network.module()
        network.write(start, module)
        with torch.no_grad():
            return torch.softmax(module(samples.inputs(rows)), 1).mean(0)

    def _variation(self, x: Tensor) -> Tensor:
        pictures = self._pictures(x)
        return pictures.diff(dim=1).abs().mean() + pictures.diff(dim=2).abs().mean()

    def _pictures(self, x: Tensor) -> Tensor:
        """[n, h, w, …] of samples as the network reads them."""
        shape = self.known.network.input_shape
        if self.known.network.spec.layout == "flat":
            return x.reshape(-1, *shape)
        return x.movedim(-3, -1).reshape(-1, *shape)


def label_counts(
    change: NDArray[np.float64], predicted: NDArray[np.float64], rate: float, samples: int
) -> NDArray[np.int64]:
    """How often each label is there: Δb = −rate (p − share), rate = η times the steps."""
    return whole_counts((predicted + change / rate).clip(min=0), samples)


def whole_counts(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers of this sum, as near the shares as they can be: the largest remainders are rounded up."""
    exact = (
        shares / max(float(shares.sum()), 1e-12) * total
        if shares.sum() > 0
        else np.full(len(shares), total / len(shares))
    )
    counts = np.floor(exact).astype(np.int64)
    for place in np.argsort(counts - exact)[: total - int(counts.sum())]:
        counts[place] += 1
    return counts
