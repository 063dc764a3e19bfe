"""One client after another on one reused module: the fastest way on a CPU for everything that is not a linear stack.

The module's parameters are views of one flat buffer, so that starting a client is one copy
and a step is a few vector operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from covey import randomness
from covey.errors import CoveyError
from covey.learn.flat import Network, as_tensor_of, numbers, views
from covey.learn.kernels.convolutions import narrow
from covey.learn.kernels.convolutions.pooling import is_narrow, join, using
from covey.learn.kernels.factors import Layers, Unknown, add_squares, known, layers_of, means, norms
from covey.learn.kernels.stacked import vmap_fails, written_out
from covey.learn.keyed import slot_keys
from covey.learn.objective import Objective, clipped, keep_mask
from covey.learn.precision import of_products, of_steps
from covey.learn.rule import Rule
from covey.learn.samples import Samples
from covey.learn.schedule.waves import Wave
from covey.learn.work import Plan

SAMPLE_GRADIENTS = {"cpu": 16_000_000, "cuda": 128_000_000}  # floats of per-sample gradients held at a time


class Loop:
    """The loop kernel. Does every network."""

    name = "loop"

    def __init__(self, network: Network, samples: Samples, device: torch.device, own_loops: bool = False) -> None:
        self.network, self.samples, self.device, self._own_loops = network, samples, device, own_loops
        self._trainees: dict[tuple[int, float], Trainee] = {}

    @property
    def points(self) -> Loop:
        return self

    def joins(self, plan: Plan) -> bool:
        """Clients go one by one, whatever they begin at."""
        return False

    def train(self, wave: Wave) -> Tensor:
        """Trained models [n, D] in the wave's order."""
        trainee = self.trainee(wave.head_classes, wave.head_share)
        result = wave.start.new_empty(wave.start.shape)
        with _own_generator(self.network, self.device):
            for client, steps in enumerate(wave.steps):
                result[client] = self._train_one(trainee, wave.clients(client, client + 1), steps)
        return result

    def _train_one(self, trainee: Trainee, wave: Wave, steps: int) -> Tensor:
        plan, rule = wave.plan, Rule.of(wave.plan)
        model = trainee.model
        trainee.begin(wave.start[0], training=True)
        velocity = torch.zeros_like(model) if plan.momentum else None
        target = model if velocity is None else velocity
        target_views = trainee.trained_views(target)
        constant = None if wave.constant is None else wave.constant[0]
        moves = None if wave.moves is None else wave.moves[0]
        # An empty Poisson batch is one slot without weight.
        sizes = zip(wave.counts[:steps, 0].clamp(min=1).tolist(), wave.divisors[:steps, 0].tolist())
        for step, (count, divisor) in enumerate(sizes):
            batch = self._batch(wave, step, count)
            trainee.seed(wave, step)
            if plan.clip:
                gradient = trainee.clipped_gradient(batch, wave.factor[step, 0, :count], divisor, plan.clip)
                if wave.noise_keys is not None:
                    noise = randomness.normals(wave.noise_keys[step], len(model), self.device)[0]
                    gradient.add_(noise, alpha=plan.noise * plan.clip / divisor)
                elif wave.secret is not None and plan.noise:
                    gradient = wave.secret.gaussian(gradient, plan.noise * plan.clip / divisor)
                target.mul_(rule.beta).add_(gradient, alpha=rule.alpha)
            else:
                gradients = trainee.gradients(batch, wave.factor[step, 0, :count])
                if rule.beta != 1:
                    target.mul_(rule.beta)
                torch._foreach_add_(target_views, gradients, alpha=rule.alpha)
            rule.finish(model, velocity, constant)
            if moves is not None:
                torch.where(moves, model, wave.start[0], out=model)
        trainee.end()
        return model

    def _batch(self, wave: Wave, step: int, count: int) -> tuple[Tensor | None, ...]:
        rows = wave.rows[step, 0, :count]
        keep = keys = None
        if wave.dropout_keys is not None and wave.plan.dropout:
            keep = keep_mask(wave.dropout_keys[step], count, self.network.features, wave.plan.dropout)[0]
        head_y = None if wave.head_labels is None else wave.head_labels[step, 0, :count]
        if wave.dropout_keys is not None and self.network.facts.dropping:
            keys = slot_keys(wave.dropout_keys[step], count)[0]
        return self.samples.inputs(rows), self.samples.labels(rows), keep, head_y, keys

    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        """Outputs [b, classes] of one model [d]."""
        trainee = self.trainee(0, 1.0)
        trainee.begin(model)
        with torch.no_grad():
            out: Tensor = trainee.objective.net(x)
        return out

    def gradient(self, at: Tensor, rows: Tensor) -> Tensor:
        """Mean gradient [d]."""
        trainee = self.trainee(0, 1.0)
        trainee.begin(at)
        total = torch.zeros_like(at)
        for part in torch.split(rows, self.samples.at_once):
            factor = torch.full((len(part),), 1 / len(rows), device=self.device)
            batch = (self.samples.inputs(part), self.samples.labels(part))
            torch._foreach_add_(trainee.trained_views(total), trainee.gradients(batch, factor))
        return total

    def sample_norms(self, at: Tensor, rows: Tensor) -> Tensor:
        """Norm of every sample's gradient [n]."""
        try:
            return torch.cat([norms(layers) for layers in self._layers(at, rows)])
        except Unknown:
            return torch.cat([g.norm(dim=1) for g in self._sample_gradients(at, rows)])

    def fisher(self, at: Tensor, rows: Tensor) -> Tensor:
        """Mean squared per-sample gradient [d]."""
        trainee, total = self.trainee(0, 1.0), torch.zeros_like(at)
        try:
            for layers in self._layers(at, rows):
                add_squares(trainee.trained_views(total), trainee.parameters, layers)
        except Unknown:
            total.zero_()
            for gradients in self._sample_gradients(at, rows):
                total += gradients.square_().sum(dim=0)
        return total / len(rows)

    def sample_gradients(self, at: Tensor, rows: Tensor, last: int) -> Tensor:
        """Every sample's gradient of the last parameters [n, last]."""
        return torch.cat(list(self._sample_gradients(at, rows, last)))

    def _layers(self, at: Tensor, rows: Tensor) -> Iterator[Layers]:
        """Of passes over the rows, part by part, where the network's are known."""
        if not known(self.network):
            raise Unknown
        trainee = self.trainee(0, 1.0)
        trainee.begin(at)
        for part in torch.split(rows, self.samples.at_once):
            yield layers_of(trainee.objective, trainee.parameters, self.samples.inputs(part), self.samples.labels(part))

    def _sample_gradients(self, at: Tensor, rows: Tensor, last: int = 0) -> Iterator[Tensor]:
        trainee = self.trainee(0, 1.0)
        trainee.begin(at)
        width = min(at_once(last, at.device), self.samples.at_once) if last else at_once(len(at), at.device)
        for part in torch.split(rows, width):
            yield trainee.sample_gradients((self.samples.inputs(part), self.samples.labels(part)), last)

    def trainee(self, head_classes: int, share: float) -> Trainee:
        """The module of the loss, kept for the next call."""
        known = (head_classes, share)
        if known not in self._trainees:
            self._trainees[known] = Trainee(
                Objective(self.network, head_classes, share, self.device), self.network, self._own_loops
            )
        return self._trainees[known]


def _own_generator(network: Network, device: torch.device) -> AbstractContextManager[None]:
    """Where steps seed torch's generator, the one outside stays as it is."""
    if not network.facts.drawing:
        return nullcontext()
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


class Trainee:
    """A module whose trained parameters are views of `model` [D]."""

    def __init__(self, objective: Objective, network: Network, own_loops: bool = False) -> None:
        self.objective, self.network = objective, network
        self._kernels = (
            narrow if own_loops and network.plain and is_narrow(objective.net) and join(objective.net) else None
        )
        self.model = torch.zeros(numbers(objective.slots), device=next(objective.parameters()).device)
        named = dict(objective.named_parameters())
        self.parameters = [named[name] for name in objective.trained]
        for parameter, view in zip(self.parameters, self.trained_views(self.model)):
            parameter.data = view
        constant = {f"net.{name}" for name in network.facts.constant}
        self._constant = {n: (b, b._version) for n, b in objective.named_buffers() if n in constant}
        self._modal = not network.plain  # some layers train and predict in two ways

    def begin(self, vector: Tensor, training: bool = False) -> None:
        """Takes a model; running statistics go where the module has them, in a type of their own."""
        self.model.copy_(vector)
        if self._modal and self.objective.training != training:
            self.objective.train(training)
        for name, buffer, slot in self._running():
            buffer.copy_(as_tensor_of(name, buffer, slot))

    def end(self) -> None:
        """Running statistics come back to the vector."""
        for _, buffer, slot in self._running():
            slot.copy_(buffer)
        now = dict(self.objective.named_buffers()) if self._constant else {}
        for name, (buffer, version) in self._constant.items():
            if now[name] is not buffer or buffer._version != version:
                raise CoveyError(
                    f"model '{self.network.title}': training changed its buffer '{name.removeprefix('net.')}', which it did not "
                    "when the model was tried, so it would be lost: change it in every training pass, or in none"
                )

    def _running(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(name, buffer of the module, its place in the vector)"""
        if self.objective.running:
            own, slots = dict(self.objective.named_buffers()), self.cut(self.model)
            yield from ((name, own[name], slots[name]) for name in self.objective.running)

    def seed(self, wave: Wave, step: int) -> None:
        """Of torch's generator, for what only it can draw."""
        if self.network.facts.drawing and wave.dropout_keys is not None:
            torch.manual_seed(int(wave.dropout_keys[step, 0]))

    def cut(self, vector: Tensor) -> dict[str, Tensor]:
        return views(vector, self.objective.slots)

    def trained_views(self, vector: Tensor) -> list[Tensor]:
        return list(self.objective.parameters_of(vector).values())

    def gradients(self, batch: tuple[Tensor | None, ...], factor: Tensor) -> tuple[Tensor, ...]:
        """Gradient of Σ factor · loss, one tensor per trained parameter."""
        try:
            with of_steps(factor.device), using(self._kernels):
                losses = self.objective(*batch)
            loss = torch.dot(losses, factor)
        except ValueError as e:
            mixes = self.network.facts.mixes
            if len(factor) > 1 or not mixes:
                raise
            raise CoveyError(
                f"a client has a batch of one sample, of which '{mixes}' of model '{self.network.title}' cannot take statistics: "
                "set training.last_batch = 'merge', or choose a training.batch_size that leaves no batch of one, 0 for all of a "
                "client's samples at once, or GroupNorm"
            ) from e
        return torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)

    def clipped_gradient(self, batch: tuple[Tensor | None, ...], factor: Tensor, divisor: int, clip: float) -> Tensor:
        """Σ factor · clipped per-sample gradient [D], in microbatches so that memory stays bounded."""
        total = torch.zeros_like(self.model)
        width = at_once(len(self.model), self.model.device)
        divisors = torch.tensor(divisor, device=factor.device)
        for low in range(0, len(factor), width):
            part = tuple(None if t is None else t[low : low + width] for t in batch)
            self._add_clipped(total, part, factor[low : low + width], divisors, clip)
        return total

    def _add_clipped(
        self, total: Tensor, batch: tuple[Tensor | None, ...], factor: Tensor, divisors: Tensor, clip: float
    ) -> None:
        # A bound that is promised hangs on the norm: by factors of covey's own networks alone, and where no product is rounded.
        if not (self.network.plain and known(self.network)) or of_products() != "ieee":
            gradients = self.sample_gradients(batch)
            total.addmv_(gradients.t(), clipped(factor, gradients.norm(dim=1), divisors, clip))
            return
        x, *more = batch
        assert x is not None
        layers = layers_of(self.objective, self.parameters, x, *more)
        shares = clipped(factor, norms(layers), divisors, clip)
        targets: dict[Tensor, Tensor] = dict(zip(self.parameters, self.trained_views(total)))
        for parameter, gradient in means(layers, shares[None]):
            targets[parameter] += gradient[0]

    def sample_gradients(self, batch: tuple[Tensor | None, ...], last: int = 0) -> Tensor:
        """[b, D]; of the network's last parameters alone [b, last], of which those before them need no gradient."""
        high = self.network.d if last else len(self.model)
        low = high - last if last else 0
        before, behind = self.model[:low], self.model[high:]

        def loss(part: Tensor, *sample: Tensor | None) -> Tensor:
            one = tuple(None if t is None else t.unsqueeze(0) for t in sample)
            model = torch.cat([before, part, behind]) if last else part
            out: Tensor = functional_call(self.objective, self.objective.parameters_of(model), one)
            return out.squeeze(0)

        if self._modal and vmap_fails(self.network):
            return self._one_by_one(batch)[:, low:high]
        given = tuple(None if t is None else 0 for t in batch)
        with written_out():
            gradients: Tensor = vmap(grad(loss), in_dims=(None, *given))(self.model[low:high], *batch)
        return gradients

    def _one_by_one(self, batch: tuple[Tensor | None, ...]) -> Tensor:
        samples = _length(batch)
        gradients = torch.zeros(samples, len(self.model), device=self.model.device)
        one = torch.ones(1, device=self.model.device)
        for i in range(samples):
            sample = tuple(None if t is None else t[i : i + 1] for t in batch)
            for view, g in zip(self.trained_views(gradients[i]), self.gradients(sample, one)):
                view.copy_(g)
        return gradients


def _length(batch: tuple[Tensor | None, ...]) -> int:
    return len(next(t for t in batch if t is not None))


def at_once(length: int, device: torch.device) -> int:
    """Samples whose gradients, of this length, are held side by side."""
    return max(1, SAMPLE_GRADIENTS.get(device.type, SAMPLE_GRADIENTS["cpu"]) // length)
