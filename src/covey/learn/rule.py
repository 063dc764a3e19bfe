"""The update rule that all kernels share, arranged so that the gradient can be added by the kernel that computes it.

With g the (noisy) mean gradient, p = weight decay + μ and c = correction − μ · anchor, a step is

    without momentum   θ ← (1 − lr p) θ − lr g − lr c
    with momentum m    v ← m v + g + p θ + c,   θ ← θ − lr v

In both, the gradient enters as `target ← beta · target + alpha · g`: one fused product where the kernel has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from covey.learn.work import Plan


@dataclass(frozen=True)
class Rule:
    lr: float
    momentum: float
    pull: float  # p
    beta: float
    alpha: float

    @classmethod
    def of(cls, plan: Plan) -> Rule:
        pull = plan.weight_decay + plan.proximal
        if plan.momentum:
            return cls(plan.lr, plan.momentum, pull, beta=plan.momentum, alpha=1.0)
        return cls(plan.lr, 0.0, pull, beta=1 - plan.lr * pull, alpha=-plan.lr)

    def moves_alone(self, constant: Tensor | None) -> bool:
        """Whether a client whose gradient is zero would still move: then a client that is done must be held."""
        return bool(self.momentum) or self.pull != 0 or constant is not None

    def finish(self, model: Tensor, velocity: Tensor | None, constant: Tensor | None) -> None:
        """The rest of the step, after the gradient was added to its target."""
        if velocity is None:
            if constant is not None:
                model.add_(constant, alpha=-self.lr)
            return
        if self.pull:
            velocity.add_(model, alpha=self.pull)
        if constant is not None:
            velocity.add_(constant)
        model.add_(velocity, alpha=-self.lr)
