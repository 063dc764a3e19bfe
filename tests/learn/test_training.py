"""Every kernel trains like a textbook loop: module, autograd, torch.optim.SGD, one sample at a time where gradients are clipped.

Largest absolute difference of a parameter seen when this was written (float32): 9e-8 over all plans and requests, 1.2e-7
over all models; the tests allow 1e-6.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey import randomness
from covey.crypto.noise.source import SecretNoise
from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.batched import run
from covey.learn.kernels.graph import Replays
from covey.learn.kernels.kernels import SideBySide, automatic
from covey.learn.kernels.linear import Linear
from covey.learn.kernels.stacked import Stacked
from covey.learn.kernels.streams import Streams
from covey.learn.kernels.whole import Whole
from covey.learn.machine import Machine
from covey.learn.precision import precision
from covey.learn.schedule.waves import lay_out
from covey.learn.work import Head, Job, Plan, Train
from covey.models import MODELS

SIZES = (12, 8, 5, 1)  # ragged; one client has less than a batch of 8, one a single sample
PLANS = {
    "plain": Plan(lr=0.1, batch_size=8),
    "epochs": Plan(lr=0.1, batch_size=8, epochs=3),
    "steps": Plan(lr=0.1, batch_size=8, steps=5),
    "full batch": Plan(lr=0.1, batch_size=0, epochs=2),
    "momentum": Plan(lr=0.1, batch_size=8, epochs=2, momentum=0.9),
    "decay": Plan(lr=0.1, batch_size=8, epochs=2, weight_decay=0.05),
    "proximal": Plan(lr=0.1, batch_size=8, epochs=2, proximal=0.5),
    "everything smooth": Plan(lr=0.1, batch_size=8, epochs=2, momentum=0.5, weight_decay=0.05, proximal=0.5),
    "clip": Plan(lr=0.1, batch_size=8, epochs=2, clip=0.7),
    "noise": Plan(lr=0.1, batch_size=8, epochs=2, clip=0.7, noise=0.3),
    "noise, momentum": Plan(lr=0.1, batch_size=8, epochs=2, clip=0.7, noise=0.3, momentum=0.9, proximal=0.2),
    "poisson": Plan(lr=0.1, batch_size=4, epochs=3, clip=0.7, poisson=True),
    "poisson, noise": Plan(
        lr=0.1, batch_size=2, epochs=2, clip=0.7, noise=0.3, momentum=0.9, dropout=0.4, poisson=True
    ),
    "dropout": Plan(lr=0.1, batch_size=8, epochs=2, dropout=0.4),
    "clip, dropout": Plan(lr=0.1, batch_size=8, epochs=2, dropout=0.4, clip=0.7),
}
KERNELS = {"fcnn": ("linear", "loop", "stacked"), "cnn": ("loop", "stacked", "streams")}


def network(name: str) -> Network:
    if MODELS[name].layout == "tokens":
        return Network(name, (7,), 3, "tokens", 11)
    if name == "mlp_wide":
        return Network(name, (20,), 3, "binary")
    return Network(name, (8, 8, 3) if name in ("resnet18", "lfw_cnn") else (8, 8), 3)


def samples(net: Network, count: int) -> tuple[Tensor, Tensor]:
    top = {"tokens": 11, "binary": 2}.get(net.kind, 256)
    x = randomness.bits([7], count * int(torch.tensor(net.input_shape).prod()))[0] % top
    x = x.view(count, *net.input_shape).to(torch.int32 if net.kind == "tokens" else torch.uint8)
    if net.kind == "tokens":
        x[:, -2:] *= x[:, :1] % 2  # some sequences end in padding
    return x, randomness.bits([8], count)[0] % net.classes


start_of = functools.cache(initial)


def jobs_of(
    net: Network, plan: Plan, extras: frozenset[str] = frozenset(), sizes: tuple[int, ...] = SIZES
) -> list[Job]:
    jobs, low = [], 0
    for client, size in enumerate(sizes):
        d = net.d + (net.head_size(2) if "head" in extras else 0)
        start = torch.cat([start_of(net, client), 0.1 * randomness.normals([client], d - net.d)[0]])
        on = torch.arange(size - 1, 0, -2) if "on" in extras and size > 3 else None
        work = Train(
            start,
            plan,
            anchor=start + 0.05 if "anchor" in extras else None,
            correction=0.02 * randomness.normals([50 + client], d)[0] if "correction" in extras else None,
            weights=2 * randomness.uniforms([client], size)[0] if "weights" in extras else None,
            on=on,
            head=Head(randomness.bits([client], size)[0] % 2, 2, 0.7) if "head" in extras else None,
            moves=torch.arange(net.d) % 3 != client % 2 if "moves" in extras else None,
            purpose="test",
        )
        jobs.append(Job(torch.arange(low, low + size), randomness.key(1, client), work))
        low += size
    return jobs


def textbook(net: Network, x: Tensor, y: Tensor, job: Job) -> Tensor:
    """What a paper's pseudocode says, as plainly as torch allows."""
    work, plan = job.work, job.work.plan
    own = torch.arange(len(job.rows)) if work.on is None else work.on
    x, y = x[job.rows][own], y[job.rows][own]
    if net.kind != "tokens":
        x = x.float() / (255 if net.kind == "image" else 1)
    if net.spec.layout == "image":
        x = x.unsqueeze(1) if x.dim() == 3 else x.permute(0, 3, 1, 2)
    weights = torch.ones(len(x)) if work.weights is None else work.weights[own]
    module = net.module()
    net.write(work.start[: net.d], module)
    head = None
    parameters = list(module.parameters())
    if work.head is not None:
        head = nn.Linear(net.features, work.head.classes)
        tail = work.start[net.d :]
        head.weight.data = tail[: head.weight.numel()].view(head.weight.shape).clone()
        head.bias.data = tail[head.weight.numel() :].clone()
        parameters += list(head.parameters())
    optimiser = torch.optim.SGD(parameters, plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)
    anchor = work.start if work.anchor is None else work.anchor

    def flat_gradient() -> Tensor:
        return torch.cat([p.grad.reshape(-1) for p in parameters])

    def loss_of(chosen: Tensor, keep: Tensor | float) -> Tensor:
        features = module.body(x[chosen]) * keep
        losses = F.cross_entropy(module.last(features), y[chosen], reduction="none")
        if head is not None:
            second = F.cross_entropy(head(features), work.head.labels[own][chosen], reduction="none")
            losses = work.head.share * losses + (1 - work.head.share) * second
        return (weights[chosen] * losses).sum()

    for step, (chosen, divisor) in enumerate(batches(plan, job, len(x))):
        b = len(chosen)
        keep: Tensor | float = 1.0
        if plan.dropout:
            stream = randomness.bits([randomness.key(job.key, "test", "dropout")], step + 1)[0, step]
            drawn = randomness.uniforms([int(stream)], b * net.features).view(b, net.features)
            keep = (drawn >= plan.dropout).float() / (1 - plan.dropout)
        optimiser.zero_grad()
        if plan.clip:
            total = torch.zeros_like(work.start)
            for i in range(b):
                optimiser.zero_grad()
                loss_of(chosen[i : i + 1], keep[i : i + 1] if isinstance(keep, Tensor) else keep).backward()
                gradient = flat_gradient()
                total += gradient * min(1.0, plan.clip / float(gradient.norm()))
            if plan.noise:
                stream = randomness.bits([randomness.key(job.key, "test", "noise")], step + 1)[0, step]
                total += plan.noise * plan.clip * randomness.normals([int(stream)], len(total))[0]
            gradient = total / divisor
        else:
            (loss_of(chosen, keep) / divisor).backward()
            gradient = flat_gradient()
        here = torch.cat([p.detach().reshape(-1) for p in parameters])
        gradient = gradient + plan.proximal * (here - anchor)
        if work.correction is not None:
            gradient = gradient + work.correction
        for p, part in zip(parameters, gradient.split([p.numel() for p in parameters])):
            p.grad = part.view(p.shape)
        optimiser.step()
        if work.moves is not None:
            moves = torch.cat([work.moves, torch.ones(len(work.start) - net.d, dtype=torch.bool)])
            there = torch.where(moves, torch.cat([p.detach().reshape(-1) for p in parameters]), work.start)
            for p, part in zip(parameters, there.split([p.numel() for p in parameters])):
                p.data.copy_(part.view(p.shape))
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def batches(plan: Plan, job: Job, n: int) -> Iterator[tuple[Tensor, int]]:
    """(positions of a batch, what its sum is divided by), step by step."""
    batch = min(plan.batch_size or n, n)
    order_key = randomness.key(job.key, "test", "order")
    last = plan.steps_for(n)
    for step in range(last if plan.poisson else 0):
        stream = int(randomness.bits([order_key], step + 1)[0, step])
        coins = randomness.bits([stream], n)[0].double() / 2.0**63
        yield (coins < batch / n).nonzero()[:, 0], batch
    step, epoch = 0, 0
    while step < last and not plan.poisson:
        stream = int(randomness.bits([order_key], epoch + 1)[0, epoch])
        for chosen in randomness.permutations([stream], [n])[0].split(batch)[: last - step]:
            yield chosen, len(chosen)
            step += 1
        epoch += 1


_textbooks: dict[tuple[Any, ...], Tensor] = {}


def textbook_once(net: Network, x: Tensor, y: Tensor, job: Job) -> Tensor:
    """The same for all kernels, and slower than they are."""
    work = job.work
    labels = None if work.head is None else work.head.labels
    tensors = (job.rows, work.start, work.anchor, work.correction, work.weights, work.on, work.moves, labels)
    request = (net, work.plan, job.key, len(x), *(None if t is None else t.numpy().tobytes() for t in tensors))
    if request not in _textbooks:
        _textbooks[request] = textbook(net, x, y, job)
    return _textbooks[request]


def check(net: Network, jobs: list[Job], kernel: str, tolerance: float = 1e-6, chunk: int = 0) -> None:
    x, y = samples(net, sum(len(job.rows) for job in jobs))
    trained = Machine(net, x, y, kernel=kernel, chunk=chunk).compute(jobs)
    for job, model in zip(jobs, trained):
        expected = textbook_once(net, x, y, job)
        assert not torch.equal(expected, job.work.start)  # it did train
        torch.testing.assert_close(model, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize(("name", "kernel"), [(name, kernel) for name in KERNELS for kernel in KERNELS[name]])
def test_every_plan(name: str, kernel: str, plan: Plan) -> None:
    net = network(name)
    check(net, jobs_of(net, plan), kernel)


EXTRAS = [
    ("correction",),
    ("weights",),
    ("head",),
    ("on",),
    ("moves",),
    ("anchor", "correction", "weights"),
    ("anchor", "correction", "weights", "head", "on", "moves"),
]


@pytest.mark.parametrize("extras", EXTRAS, ids="+".join)
@pytest.mark.parametrize("plan", ["proximal", "everything smooth", "noise, momentum", "clip, dropout"])
@pytest.mark.parametrize("kernel", ["linear", "loop", "stacked"])
def test_every_request(kernel: str, plan: str, extras: tuple[str, ...]) -> None:
    net = network("fcnn")
    check(net, jobs_of(net, PLANS[plan], frozenset(extras)), kernel)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_layers_that_stay_are_left_out_without_a_trace(plan: Plan) -> None:
    """A mask for each client puts them back after each step; one mask for all lets the linear kernel leave them out."""
    net = network("mlp")
    x, y = samples(net, sum(SIZES))
    machine, layers = Machine(net, x, y, kernel="linear"), len(list(net.module().parameters())) // 2
    last = net.d - sum(p.numel() for p in list(net.module().parameters())[-2:])
    place = torch.arange(net.d)
    first = sum(p.numel() for p in list(net.module().parameters())[:2])
    assert layers > 2
    linear = Linear(net, machine.samples)
    assert linear.only(place != 5) is None and linear.only(place >= last) is not None
    for moves in (place >= last, place < last, place < first, (place < first) | (place >= last), place != 5):
        jobs = jobs_of(net, plan)
        each = [replace(job, work=replace(job.work, moves=moves.clone())) for job in jobs]
        one = [replace(job, work=replace(job.work, moves=moves)) for job in jobs]
        expected = machine.compute(each)
        assert all(torch.equal(a, b) for a, b in zip(machine.compute(one), expected))
        torch.testing.assert_close(expected[0], textbook_once(net, x, y, one[0]), rtol=0, atol=1e-6)


def test_nobodys_model_is_trained_where_it_lies() -> None:
    net = network("fcnn")
    x, y = samples(net, sum(SIZES))
    jobs = jobs_of(net, PLANS["plain"])
    together = torch.stack([job.work.start for job in jobs])  # rows of one tensor, as a machine's answers are
    starts = [list(together), [together[0], together[0], together[1], together[1]], [together[0]] * 4]
    before = together.clone()
    machine = Machine(net, x, y, kernel="linear")
    for rows in starts:
        machine.compute([replace(job, work=replace(job.work, start=row)) for job, row in zip(jobs, rows)])
        machine.compute([replace(jobs[0], work=replace(jobs[0].work, start=rows[0]))])
        assert torch.equal(together, before)


@pytest.mark.parametrize("kernel", ["loop", "stacked", "streams"])
def test_requests_on_a_cnn(kernel: str) -> None:
    net = network("cnn")
    check(net, jobs_of(net, PLANS["noise, momentum"], frozenset(EXTRAS[-1])), kernel)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"resnet18", "lora"}))
@pytest.mark.parametrize("kernel", ["auto", "loop", "stacked", "streams"])
def test_every_model(name: str, kernel: str) -> None:
    net = network(name)
    check(net, jobs_of(net, PLANS["momentum"], sizes=(9, 3)), kernel)


@pytest.mark.parametrize("name", ["softmax", "fcnn_leaky", "mlp"])
def test_head_and_clip_on_other_stacks(name: str) -> None:
    net = network(name)
    check(net, jobs_of(net, PLANS["clip, dropout"], frozenset({"head"})), "linear")


@pytest.mark.parametrize("kernel", ["loop", "stacked", "streams"])
def test_resnet(kernel: str) -> None:
    """From start 0 a pre-activation of 2.8e-7 would lie within rounding of ReLU's kink, where rounding picks the gradient."""
    net = network("resnet18")
    [job] = jobs_of(net, Plan(lr=0.05, batch_size=2), sizes=(3,))
    check(net, [replace(job, work=replace(job.work, start=initial(net, 1)))], kernel)


@pytest.mark.parametrize("kernel", ["linear", "stacked"])
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_chunks_do_not_matter(kernel: str, chunk: int) -> None:
    net = network("fcnn")
    check(net, jobs_of(net, PLANS["everything smooth"], frozenset({"correction"})), kernel, chunk=chunk)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("plan", ["plain", "everything smooth", "noise, momentum", "poisson, noise"])
def test_streams_as_a_captured_step_takes_them(plan: str, channels_last: bool) -> None:
    """Ragged batches padded to one width, clients that are done held, a client that is not there: all as in a graph."""
    net = network("cnn")
    x, y = samples(net, sum(SIZES))
    cpu = torch.device("cpu")
    machine = Machine(net, x, y, kernel="loop")
    streams = Streams(Stacked(net, cpu), cpu, channels_last=channels_last)
    replays = Replays(machine.samples, net.features, streams.accumulate, budget=1e9)
    for extras in (frozenset(), frozenset(EXTRAS[-1])):
        jobs = jobs_of(net, PLANS[plan], extras)
        wave = lay_out(jobs, cpu)
        got, expected = replays.run(wave.padded(5), 1e3), machine.compute(jobs)
        for i, job in enumerate(wave.order):
            torch.testing.assert_close(got[i], expected[job], rtol=0, atol=1e-6)


def test_channels_last_is_what_the_convolutions_get() -> None:
    seen: dict[bool, set[bool]] = {}
    net = network("cnn")
    x, y = samples(net, 9)
    cpu = torch.device("cpu")
    wave = lay_out(jobs_of(net, PLANS["plain"], sizes=(9,)), cpu)
    for wanted in (False, True):
        stacked, found = Stacked(net, cpu), set()
        second = stacked.objective(0, 1.0).net.body[3]  # 6 channels into 16
        second.register_forward_pre_hook(
            lambda layer, _, found=found: found.add(layer.weight.is_contiguous(memory_format=torch.channels_last))
        )
        accumulate = Streams(stacked, cpu, channels_last=wanted).accumulate
        run(wave, Machine(net, x, y).samples, net.features, accumulate, torch.empty(1, net.d))
        seen[wanted] = found
    assert seen == {False: {False}, True: {True}}


def test_automatic_choice() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    big = Network("resnet18", (32, 32, 3), 10)
    chosen = [automatic(net, device) for net in (network("fcnn"), network("cnn"), big) for device in (cpu, cuda)]
    assert chosen == ["linear", "linear", "loop", "stacked", "loop", "streams"]
    assert automatic(network("gru"), cuda) == "stacked"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("plan", ["plain", "everything smooth", "noise, momentum", "clip, dropout", "poisson, noise"])
@pytest.mark.parametrize(
    ("name", "kernel"),
    [("fcnn", "linear"), ("fcnn", "stacked"), ("cnn", "stacked"), ("cnn", "streams"), ("gru", "stacked")],
)
def test_graphs_on_a_gpu(name: str, kernel: str, plan: str) -> None:
    net = network(name)
    jobs = jobs_of(net, PLANS[plan], frozenset(EXTRAS[-1]))
    x, y = samples(net, sum(SIZES))
    expected = Machine(net, x, y, kernel="loop").compute(jobs)
    machine = Machine(net, x, y, device="cuda", kernel=kernel)
    for _ in range(2):  # captured, then replayed
        for got, want in zip(machine.compute(jobs), expected):
            torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "products", "convolutions"),
    [("ieee", "ieee", "ieee"), ("tf32", "tf32", "tf32"), ("torch", "ieee", "tf32")],
)
def test_precision_holds_as_long_as_it_should(mode: str, products: str, convolutions: str) -> None:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, conv.fp32_precision
    with precision(mode, torch.device("cuda")):
        assert (matmul.fp32_precision, conv.fp32_precision) == (products, convolutions)
    assert (matmul.fp32_precision, conv.fp32_precision) == before


def test_order_and_company_do_not_matter() -> None:
    net = network("fcnn")
    jobs = jobs_of(net, PLANS["noise"])
    x, y = samples(net, sum(SIZES))
    machine = Machine(net, x, y)
    together, alone = machine.compute(jobs), [machine.compute([job])[0] for job in jobs]
    backwards = machine.compute(jobs[::-1])[::-1]
    for a, b, c in zip(together, alone, backwards):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
        torch.testing.assert_close(a, c, rtol=0, atol=1e-6)


def test_poisson_batches_take_each_sample_at_its_rate() -> None:
    """40 samples, expected batch 10, 4,000 steps: every sample in a quarter of them, sizes as the binomial's, some batch empty."""
    net = network("softmax")
    steps = 4000
    [job] = jobs_of(net, Plan(batch_size=10, steps=steps, clip=1.0, poisson=True), sizes=(40,))
    wave = lay_out([job], torch.device("cpu"))
    within = torch.arange(wave.rows.shape[2]) < wave.counts[..., None]
    assert torch.equal(wave.factor > 0, within) and float(wave.factor.max()) == pytest.approx(1 / 10)
    uses = torch.bincount(wave.rows[within], minlength=40).double()
    assert float((uses / steps - 0.25).abs().max()) < 5 * (0.25 * 0.75 / steps) ** 0.5
    assert float(wave.counts.double().var()) == pytest.approx(40 * 0.25 * 0.75, rel=0.15)
    assert bool((wave.divisors == 10).all())
    [small] = jobs_of(net, Plan(batch_size=1, steps=50, clip=1.0, noise=1.0, poisson=True), sizes=(5,))
    empty = lay_out([small], torch.device("cpu")).counts[:, 0] == 0
    assert bool(empty.any())  # and the step is taken all the same: see test_every_plan


def test_poisson_batches_are_for_bounded_gradients() -> None:
    with pytest.raises(CoveyError, match="clip"):
        Plan(poisson=True)


class Foreseen(SecretNoise):
    """Secret noise that a test can foresee: the same for all, and batches of counted words."""

    def gaussian(self, values: Tensor, scale: float | Tensor, *purpose: int | str) -> Tensor:
        return values + scale * randomness.normals([3], len(values), values.device)[0]

    def bits(self, rows: int, count: int) -> Tensor:
        return randomness.bits(list(range(rows)), count)


@pytest.mark.parametrize("plan", ["noise", "noise, momentum", "poisson, noise", "clip"])
@pytest.mark.parametrize("name", KERNELS)
def test_secret_noise_goes_on_the_gradient_of_every_step_in_every_kernel(name: str, plan: str) -> None:
    net = network(name)
    jobs = [replace(job, secret=Foreseen()) for job in jobs_of(net, PLANS[plan], sizes=(13,))]
    x, y = samples(net, 13)
    one, *others = (Machine(net, x, y, kernel=kernel).compute(jobs)[0] for kernel in KERNELS[name])
    for other in others:
        torch.testing.assert_close(other, one, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "loop", "stacked"])
def test_secret_noise_is_new_every_time_and_as_much_as_planned(kernel: str) -> None:
    """One step of the full batch of 20: θ − lr (g + N(0, σ² C²) / 20)."""
    net = network("fcnn")
    [job] = jobs_of(net, Plan(lr=0.1, batch_size=0, clip=0.7, noise=3.0), sizes=(20,))
    x, y = samples(net, 20)
    machine = Machine(net, x, y, kernel=kernel)
    [bare] = machine.compute([replace(job, work=replace(job.work, plan=replace(job.work.plan, noise=0.0)))])
    one, other = (machine.compute([replace(job, secret=SecretNoise())])[0] - bare for _ in range(2))
    for noise in (one, other):
        assert float(noise.std()) == pytest.approx(0.1 * 3.0 * 0.7 / 20, rel=0.05)  # 8 standard errors
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.08


@pytest.mark.parametrize("poisson", [False, True])
def test_secret_batches_are_new_every_time(poisson: bool) -> None:
    net = network("softmax")
    [job] = jobs_of(net, Plan(batch_size=10, steps=4, clip=1.0, poisson=poisson), sizes=(40,))
    cpu = torch.device("cpu")
    waves = [lay_out([replace(job, secret=SecretNoise())], cpu) for _ in range(2)]
    assert not torch.equal(waves[0].rows[:, :, :5], waves[1].rows[:, :, :5])
    if not poisson:  # an epoch is a permutation still
        assert sorted(waves[0].rows.flatten().tolist()) == list(range(40))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("extras", [(), ("anchor", "correction", "weights", "on")])
@pytest.mark.parametrize("plan", ["plain", "epochs", "steps", "decay", "proximal"])
def test_whole_steps_on_a_gpu(plan: str, extras: tuple[str, ...]) -> None:
    net = network("fcnn")
    jobs = jobs_of(net, PLANS[plan], frozenset(extras))
    x, y = samples(net, sum(SIZES))
    machine = Machine(net, x, y, device="cuda")
    assert isinstance(machine.kernel, SideBySide) and machine.kernel.whole is not None
    assert machine.kernel.whole.does(lay_out(jobs, machine.device))
    expected = Machine(net, x, y, kernel="loop").compute(jobs)
    for found, model in zip(machine.compute(jobs), expected):
        torch.testing.assert_close(found.cpu(), model, rtol=0, atol=1e-5)


@pytest.mark.parametrize("plan", ["momentum", "clip", "noise", "dropout", "poisson"])
def test_whole_steps_are_for_plain_ones(plan: str) -> None:
    net = network("fcnn")
    linear = Linear(net, Machine(net, *samples(net, sum(SIZES))).samples)
    whole = Whole(linear)
    assert not whole.does(lay_out(jobs_of(net, PLANS["plain"]), torch.device("cpu")))  # there is no GPU
    whole.kernels = object()
    assert whole.does(lay_out(jobs_of(net, PLANS["plain"]), torch.device("cpu")))
    assert not whole.does(lay_out(jobs_of(net, PLANS[plan]), torch.device("cpu")))
    for extra in ("head", "moves"):
        assert not whole.does(lay_out(jobs_of(net, PLANS["plain"], frozenset([extra])), torch.device("cpu")))
    assert not whole.does(lay_out(jobs_of(net, PLANS["full batch"], sizes=(65,)), torch.device("cpu")))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("name", "kernel"), [("fcnn", "linear"), ("cnn", "stacked"), ("cnn", "streams")])
def test_secret_noise_on_a_gpu(name: str, kernel: str) -> None:
    net = network(name)
    x, y = samples(net, 23)
    for plan in ("noise, momentum", "clip"):
        jobs = [replace(job, secret=Foreseen()) for job in jobs_of(net, PLANS[plan], sizes=(23,))]
        [expected] = Machine(net, x, y, kernel="loop").compute(jobs)
        [found] = Machine(net, x, y, device="cuda", kernel=kernel).compute(jobs)
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-5)


def test_clipping_bounds_a_step() -> None:
    net = network("fcnn")
    plan = Plan(lr=1.0, batch_size=0, clip=0.01)
    x, y = samples(net, 6)
    job = Job(torch.arange(6), 1, Train(initial(net, 1), plan, weights=torch.full((6,), 9.0)))
    [model] = Machine(net, x, y).compute([job])
    assert float((model - job.work.start).norm()) <= 0.01 * (1 + 1e-4)


def test_hand_computed_step() -> None:
    """One pixel (255 → 1), two classes, zero weights: the gradient at (w0, w1, b0, b1) is (½, −½, ½, −½) for label 1."""
    net = Network("softmax", (1,), 2)
    machine = Machine(net, torch.tensor([[255]], dtype=torch.uint8), torch.tensor([1]))
    [model] = machine.compute([Job(torch.tensor([0]), 0, Train(torch.zeros(4), Plan(lr=0.2)))])
    torch.testing.assert_close(model, torch.tensor([-0.1, 0.1, -0.1, 0.1]))


def test_diverging_training_names_the_cause() -> None:
    net = network("fcnn")
    x, y = samples(net, 20)
    job = Job(torch.arange(20), 1, Train(initial(net, 1), Plan(lr=1e30, epochs=5, batch_size=4)))
    with pytest.raises(CoveyError, match=r"training\.lr = 1e\+30 is probably too high"):
        Machine(net, x, y).compute([job])


def test_no_steps_change_nothing() -> None:
    net = network("fcnn")
    x, y = samples(net, 5)
    for kernel in ("linear", "loop", "stacked", "streams"):
        job = Job(torch.arange(5), 1, Train(initial(net, 1), Plan(epochs=0)))
        assert torch.equal(Machine(net, x, y, kernel=kernel).compute([job])[0], job.work.start)
