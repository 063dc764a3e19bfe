"""Modules of a user's own in every kernel: against plain torch, against each other, and what is kept where."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey import randomness
from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.initial import initial, layers, personal_mask
from covey.learn.kernels.kernels import fallback, taken
from covey.learn.kernels.stacked import obstacle
from covey.learn.machine import Machine
from covey.learn.work import (
    Fisher,
    Gradient,
    GradientNorms,
    Head,
    Job,
    Losses,
    Plan,
    SampleGradients,
    SampleLosses,
    Train,
)
from covey.models.classifier import Classifier
from covey.models.spec import Spec
from support import own_models

PLACE = "support.own_models"
PLAN = Plan(lr=0.1, epochs=2, batch_size=4, momentum=0.5, weight_decay=0.01, proximal=0.1)
SIZES = (9, 6, 3)
NORM = nn.BatchNorm1d(4, affine=False, track_running_stats=False)


def network(name: str, **more: object) -> Network:
    return Network(f"{PLACE}:{name}", (8, 8), 3, **more)  # type: ignore[arg-type]


def samples(count: int = sum(SIZES)) -> tuple[Tensor, Tensor]:
    x = randomness.bits([3], count * 64)[0].view(count, 8, 8) % 256
    return x.to(torch.uint8), torch.arange(count) % 3


def jobs(net: Network, plan: Plan, **more: object) -> list[Job]:
    rows = torch.arange(sum(SIZES)).split(SIZES)
    return [Job(r, 10 + i, Train(initial(net, 1), plan, **more)) for i, r in enumerate(rows)]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Convolutional", "Attentive"])
@pytest.mark.parametrize("plan", [PLAN, Plan(lr=0.1, batch_size=4, clip=0.5, noise=0.3), Plan(dropout=0.3, lr=0.1)])
def test_stacked_and_streams_do_as_the_loop_does(name: str, plan: Plan) -> None:
    net = network(name)
    assert net.facts.dropping and not obstacle(net)
    results = {}
    for kernel, chunk in (("loop", 0), ("stacked", 0), ("stacked", 2), ("streams", 0)):
        results[kernel, chunk] = Machine(net, *samples(), kernel=kernel, chunk=chunk).compute(jobs(net, plan))
    for other in results.values():
        for got, want in zip(other, results["loop", 0]):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
            assert not torch.equal(want, initial(net, 1))


@pytest.mark.parametrize("name", ["Convolutional", "Attentive", "Noisy", "Normed"])
def test_company_does_not_matter(name: str) -> None:
    """Dropout and other draws are a client's own, whoever trains beside it; torch's generator is left alone."""
    net = network(name)
    plan = replace(PLAN, batch_size=3)
    machine = Machine(net, *samples())
    before = torch.get_rng_state()
    together = machine.compute(jobs(net, plan))
    assert torch.equal(before, torch.get_rng_state())
    alone = [machine.compute([job])[0] for job in reversed(jobs(net, plan))]
    for a, b in zip(together, reversed(alone)):
        assert torch.equal(a, b)


def test_masks_are_dropouts() -> None:
    from covey.learn.keyed import keyed, slot_keys

    keys = slot_keys(torch.tensor([5]), 50)[0]
    with keyed(keys):
        dropped, again = F.dropout(torch.ones(50, 400), 0.3), F.dropout(torch.ones(50, 400), 0.3)
        planes = F.dropout2d(torch.ones(50, 16, 2, 2), 0.5)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.03)
    assert not torch.equal(dropped, again)
    assert torch.equal(planes.amin((2, 3)), planes.amax((2, 3)))
    attention = torch.randn(4, 2, 5, 8, generator=torch.Generator().manual_seed(1))
    with keyed(keys[:4]):
        exact = F.scaled_dot_product_attention(attention, attention, attention, dropout_p=1e-9, is_causal=True)
    expected = F.scaled_dot_product_attention(attention, attention, attention, is_causal=True)
    torch.testing.assert_close(exact, expected, rtol=0, atol=1e-6)


def test_tied_frozen_and_constant_tensors() -> None:
    net = network("Attentive")
    names = set(net.shapes)
    assert "embed.weight" in names and "again.weight" not in names  # tied: one copy
    assert not names & {"fixed.weight", "fixed.bias", "scale"}
    machine = Machine(net, *samples())
    trained = machine.compute(jobs(net, PLAN))[0]
    module, fresh = net.module(), net.module()
    net.write(trained, module)
    assert module.again.weight is module.embed.weight
    assert torch.equal(module.fixed.weight, fresh.fixed.weight) and module.scale == 2
    assert torch.equal(net.read(module), trained)
    other = initial(net, 2)
    assert not torch.equal(other, initial(net, 1)) and torch.equal(other, initial(net, 2))
    assert len(net.fingerprint.split("-")) == 2


def test_layers_of_own_modules_can_be_personal() -> None:
    net = network("Normed")
    assert [name for name, _, _ in layers(net)] == ["body.1", "body.2", "out"]
    assert int(personal_mask(net, 2).sum()) == (8 + 8 + 8 + 8) + (8 * 3 + 3)  # norm with its statistics, outputs


def by_hand(net: Network, model: nn.Module, x: Tensor, y: Tensor, lr: float) -> None:
    """One full-batch step of plain SGD."""
    model.train()
    loss = F.cross_entropy(model(x[:, None].float() / 255), y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for p, g in zip(model.parameters(), gradients):
            p.sub_(g, alpha=lr)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_running_statistics_are_in_the_vector_and_as_torch_has_them(momentum: float) -> None:
    net = network("Normed")
    x, y = samples(6)
    [trained] = Machine(net, x, y).compute(
        [
            Job(
                torch.arange(6),
                1,
                Train(initial(net, 1), Plan(lr=0.1, batch_size=0, momentum=momentum, weight_decay=0.1)),
            )
        ]
    )
    module = net.module()
    net.write(trained, module)
    expected = net.module()
    net.write(initial(net, 1), expected)
    by_hand(net, expected, x, y, 0.1)
    norm, want = module.body[2], expected.body[2]
    torch.testing.assert_close(norm.running_mean, want.running_mean)
    torch.testing.assert_close(norm.running_var, want.running_var)
    assert "body.2.num_batches_tracked" not in net.shapes  # nothing computes with it
    assert taken("stacked", net, torch.device("cpu")) == "loop"
    assert "buffer 'body.2.running_mean'" in fallback("stacked", net, torch.device("cpu"))


def test_a_counter_that_counts_is_a_whole_number_in_the_module() -> None:
    """BatchNorm with momentum None averages over all batches, by their number."""
    net = network("Counting")
    x, y = samples(6)
    trained = initial(net, 1)
    for round in range(2):
        [trained] = Machine(net, x, y).compute(
            [Job(torch.arange(6), round, Train(trained, Plan(lr=0.1, batch_size=3)))]
        )
    module = net.module()
    average = trained + 0.2 * (net.read(module) == 0)  # counters of several clients need not be whole
    net.write(average, module)
    counter = module.body[2].num_batches_tracked
    assert int(counter) == 4 and counter.dtype == torch.int64
    net.write(-trained, module)
    assert module.body[2].running_var.min() == 0  # noise may have made it negative


def test_local_buffers_stand_behind_the_vector() -> None:
    shared, net = network("Normed"), network("Normed", buffers="local")
    assert net.size == shared.d and net.d == shared.d - 16
    machine = Machine(net, *samples())
    plan = replace(PLAN, batch_size=3)
    short = machine.compute(jobs(net, plan))[0]
    longer = [replace(job, work=replace(job.work, start=net.whole(job.work.start))) for job in jobs(net, plan)]
    whole = machine.compute(longer)[0]
    assert len(short) == net.d and len(whole) == net.size
    assert torch.equal(short, whole[: net.d])
    rows = torch.arange(6)
    (a, b) = (machine.compute([Job(rows, 0, Losses(v[None]))])[0] for v in (short, whole))
    assert not torch.equal(a, b)  # predicted with the statistics of a fresh client, and with its own


def test_what_is_asked_at_a_point_is_asked_of_the_predicting_model() -> None:
    """BatchNorm with running statistics, no dropout: one sample's gradient is defined."""
    for name in ("Normed", "Attentive", "Branching", "Recurrent"):
        net = network(name)
        x, y = samples(7)
        at, rows = initial(net, 1), torch.arange(7)
        works = [Gradient(at), GradientNorms(at), Fisher(at), SampleLosses(at[None]), SampleGradients(at, 5)]
        gradient, norms, fisher, losses, last = Machine(net, x, y).compute([Job(rows, 1, work) for work in works])
        expected = own_models.gradients_by_sample(net, at, x, y)
        torch.testing.assert_close(norms, expected.norm(dim=1), rtol=0, atol=1e-5)
        torch.testing.assert_close(last, expected[:, -5:], rtol=0, atol=1e-5)
        assert fisher.sum().item() == pytest.approx(expected.square().mean(0).sum().item(), rel=1e-4)
        assert gradient.norm().item() == pytest.approx(expected.mean(0).norm().item(), rel=1e-4)
        assert losses.shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "why"),
    [("Branching", "decides by the values of the samples"), ("Recurrent", "torch.func cannot stack it")],
)
def test_a_wave_falls_back_where_torch_func_cannot(name: str, why: str) -> None:
    net = network(name)
    assert why in obstacle(net)
    loop = Machine(net, *samples(), kernel="loop").compute(jobs(net, PLAN))
    stacked = Machine(net, *samples(), kernel="stacked").compute(jobs(net, PLAN))
    assert all(torch.equal(a, b) for a, b in zip(loop, stacked))
    clipped = Plan(lr=0.1, batch_size=4, clip=0.5)
    assert torch.isfinite(Machine(net, *samples()).compute(jobs(net, clipped))[0]).all()


@pytest.mark.parametrize("body", own_models.BODIES)
def test_linear_layers_are_a_stack_where_they_are_computed_as_one(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of covey's shape that a user brings: the closed form of the linear kernel is not theirs."""
    make = own_models.BODIES[body]
    theirs = Spec("theirs", "", "flat", lambda shape, classes, _: Classifier(make(), 64, classes), 1)
    monkeypatch.setattr(own_models, "THEIRS", theirs, raising=False)
    net = network("THEIRS")
    assert net.plain is (body not in ("a layer of its own", "a shortcut", "one layer twice", "tied"))
    expected = Machine(net, *samples(), kernel="loop").compute(jobs(net, PLAN))
    for got, want in zip(Machine(net, *samples()).compute(jobs(net, PLAN)), expected):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "mixes"),
    [
        (nn.Dropout(0.5), ""),
        (nn.RReLU(), ""),
        (nn.Sequential(nn.Unflatten(1, (4, 16)), NORM, nn.Flatten()), "body.1.1"),
    ],
)
def test_layers_that_train_otherwise_than_they_predict_are_not_overlooked(
    layer: nn.Module, mixes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = lambda shape, classes, _: Classifier(nn.Sequential(nn.Flatten(), layer), 64, classes)  # noqa: E731
    monkeypatch.setattr(own_models, "THEIRS", Spec("theirs", "", "flat", make, 1), raising=False)
    net = network("THEIRS")
    assert not net.plain and net.facts.mixes == mixes
    machine, asked = Machine(net, *samples()), [Job(torch.arange(9), 1, Losses(initial(net, 1)[None]))]
    assert torch.equal(machine.compute(asked)[0], machine.compute(asked)[0])
    plan = replace(PLAN, batch_size=3)  # no batch of one sample
    first, again = (machine.compute(jobs(net, plan)) for _ in range(2))
    assert all(map(torch.equal, first, again))


class Halving(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * super().forward(x)


def test_whose_forward_is_their_own_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Spec("theirs", "", "flat", lambda shape, classes, _: Halving(nn.Flatten(), 64, classes), 1)
    monkeypatch.setattr(own_models, "THEIRS", theirs, raising=False)
    net = network("THEIRS")
    assert not net.plain and net.features == 0
    x, y = samples()
    module = net.module()
    net.write(initial(net, 1), module)
    mean = F.cross_entropy(module(x.float() / 255), y).detach()
    (loss,) = Machine(net, x, y).compute([Job(torch.arange(len(x)), 1, Losses(initial(net, 1)[None]))])
    assert float(loss) == pytest.approx(float(mean), rel=1e-5)


def test_a_second_head_on_an_own_module() -> None:
    net = network("Convolutional")
    start = torch.cat([initial(net, 1), torch.zeros(net.head_size(2))])
    work = Train(start, PLAN, head=Head(torch.arange(9) % 2))
    results = [
        Machine(net, *samples(), kernel=k).compute([Job(torch.arange(9), 1, work)])[0] for k in ("loop", "stacked")
    ]
    torch.testing.assert_close(*results, rtol=0, atol=1e-5)
    assert results[0][net.d :].abs().sum() > 0
    assert net.output_size("an attack") == 4 * 3 + 3


def test_refusals_of_what_a_batch_mixes() -> None:
    net = network("Normed")
    machine = Machine(net, *samples())
    with pytest.raises(CoveyError, match=r"'body.2' computes with the whole batch.*GroupNorm or LayerNorm"):
        machine.compute(jobs(net, Plan(clip=1.0)))
    with pytest.raises(CoveyError, match=r"a batch of one sample, of which 'body.2' of model"):
        machine.compute(jobs(net, Plan(batch_size=4)))  # 9 = 4 + 4 + 1


def test_a_buffer_that_changes_only_later_is_not_lost_in_silence() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(64, 3)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            if self.training and len(x) == 4:
                self.seen += 1
            return self.out(x.flatten(1))

    from covey.models.choice import model_of

    net = Network(model_of(Late()), (8, 8), 3)
    with pytest.raises(CoveyError, match="training changed its buffer 'seen'"):
        Machine(net, *samples()).compute(jobs(net, PLAN))


def test_a_given_module_starts_with_its_own_values_and_stays_as_it_is() -> None:
    from covey.models.choice import model_of

    module = copy.deepcopy(network("Convolutional").module())
    with torch.no_grad():
        module.out.bias.fill_(3.0)
    net = Network(model_of(module), (8, 8), 3)
    assert torch.equal(initial(net, 1), initial(net, 2)) and initial(net, 1)[-1] == 3
    Machine(net, *samples()).compute(jobs(net, PLAN))
    assert module.out.bias[0] == 3
