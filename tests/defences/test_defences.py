"""Each defence by hand: what it asks for, what it adds, what it books."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.algorithms.contract import Client, Setting
from covey.config import choose
from covey.defences import DEFENCES
from covey.defences.afc import AFC, clipping_bound, clipping_weights, normalised
from covey.defences.contract import defend
from covey.defences.dp_sgd import DPSGD
from covey.defences.ldp import ADP, LDP
from covey.defences.sensitivity import sensitivity_growth, step_sensitivity
from covey.errors import CoveyError
from covey.learn.work import Fisher, GradientNorms, Head, Losses, Plan, Train
from covey.ledger.events import PRIVATE, PUBLIC

PLAN = Plan(lr=0.1, steps=1, batch_size=20)
D = 4000


def client(samples: int = 100, round: int = 1, plan: Plan = PLAN, memory: dict | None = None, d: int = D) -> Client:
    setting = Setting(0, 1, 1, 1, plan, torch.zeros(1, d), torch.ones(d, dtype=torch.bool))
    nothing = torch.zeros(0)
    return Client(0, round, 7, samples, plan, setting, memory or {}, {}, lambda: (nothing, nothing))


def drive(coroutine, answers):
    """(requests, result) of a coroutine that is given these answers in turn."""
    asked, answer, waiting = [], None, list(answers)
    while True:
        try:
            asked.append(coroutine.send(answer))
        except StopIteration as stop:
            return asked, stop.value
        answer = waiting.pop(0)


def afc_turn(defence: AFC, me: Client, norms: list[float], fisher: torch.Tensor, plan: Plan = PLAN):
    work = Train(torch.zeros(len(fisher)), plan)
    return drive(defence.train(me, work), [[torch.tensor(norms), fisher], torch.zeros(len(fisher))])


def test_dp_sgd_changes_the_plan_and_books_its_steps():
    me, plan = client(samples=90), Plan(lr=0.1, epochs=3, batch_size=20)
    (asked,), model = drive(DPSGD(clip=2.0, noise=0.7).train(me, Train(torch.zeros(D), plan)), [torch.ones(D)])
    assert asked.plan == replace(plan, clip=2.0, noise=0.7) and torch.equal(model, torch.ones(D))
    (event,) = me.events
    assert (event.sampling, event.noise, event.steps, event.uses) == (20 / 90, 0.7, 15, 3)


def test_dp_sgd_counts_samples_that_the_work_is_restricted_to():
    me = client(samples=90)
    drive(DPSGD().train(me, Train(torch.zeros(D), PLAN, on=torch.arange(40))), [torch.ones(D)])
    assert me.events[0].sampling == 0.5


def test_ldp_adds_the_papers_noise_once_on_the_updated_weights():
    """Δf = 2 · .1 · 3 / 20 = .03, σ = √(2 ln 125000) / 2."""
    me = client()
    (asked,), model = drive(LDP(epsilon=2.0, clip=3.0).train(me, Train(torch.zeros(D), PLAN)), [torch.ones(D)])
    assert asked.plan == replace(PLAN, clip=3.0)
    noise = (model - 1).double()
    assert float(noise.std()) == pytest.approx(0.03 * math.sqrt(2 * math.log(125000)) / 2, rel=0.05)
    assert abs(float(noise.mean())) < 0.01
    (event,) = me.events
    assert event.sensitivity == pytest.approx(0.03) and event.growth == 1.0 and event.sensitivity_from == PUBLIC
    assert me.notes == {"clip": 3.0, "noise": pytest.approx(float(noise.norm()), rel=1e-5)}


def test_adp_decays_from_the_noise_of_ldp():
    for round in (1, 2, 100):
        assert ADP(epsilon=2.0).sigma(round) == pytest.approx(LDP(epsilon=2.0).sigma(1) * 0.995 ** (round - 1))
    first, later = client(round=1), client(round=200)
    for me in (first, later):
        drive(ADP().train(me, Train(torch.zeros(D), PLAN)), [torch.ones(D)])
    assert later.events[0].sigma == pytest.approx(first.events[0].sigma * 0.995**199)
    assert later.notes["noise"] == pytest.approx(first.notes["noise"] * 0.995**199, rel=0.1)


def test_the_sensitivity_of_several_steps():
    """Three steps of 20: the first moves Δf, each later one up to 2 η C = 20 Δf."""
    three = replace(PLAN, steps=3)
    assert step_sensitivity(three, 1.0, 100) == pytest.approx(0.01)
    assert sensitivity_growth(PLAN, 100) == 1.0
    assert sensitivity_growth(three, 100) == 41.0
    assert sensitivity_growth(replace(three, momentum=0.5), 100) == 82.0
    assert sensitivity_growth(replace(PLAN, momentum=0.5), 100) == 1.0


def test_several_steps_scale_the_noise_or_the_price():
    plan = replace(PLAN, steps=3)
    paper, safe = client(plan=plan), client(plan=plan)
    drive(LDP().train(paper, Train(torch.zeros(D), plan)), [torch.ones(D)])
    drive(LDP(sensitivity="round").train(safe, Train(torch.zeros(D), plan)), [torch.ones(D)])
    assert (paper.events[0].growth, safe.events[0].growth) == (41.0, 1.0)
    assert safe.notes["noise"] == pytest.approx(41 * paper.notes["noise"], rel=1e-4)


def test_a_client_with_one_sample_has_a_batch_of_one():
    for defence in (LDP(), DPSGD()):
        me = client(samples=1)
        drive(defence.train(me, Train(torch.zeros(D), PLAN)), [torch.ones(D)])
    assert me.events[0].sampling == 1.0
    me = client(samples=1)
    drive(LDP().train(me, Train(torch.zeros(D), PLAN)), [torch.ones(D)])
    assert me.events[0].sensitivity == pytest.approx(2 * 0.1 * 1.0 / 1)
    me = client(samples=1)
    asked, _ = afc_turn(AFC(), me, [2.0], torch.rand(D))
    assert asked[0][0].on.tolist() == [0]


@pytest.mark.parametrize("defence", [DPSGD(), LDP(), AFC()])
def test_a_client_without_samples_is_refused(defence):
    with pytest.raises(CoveyError, match="no samples"):
        next(defence.train(client(samples=0), Train(torch.zeros(D), PLAN)))


def test_afcs_clipping_bound_is_a_percentile_of_the_history():
    assert clipping_bound([3.0], 70) == 3.0
    assert clipping_bound([1.0, 2.0], 70) == pytest.approx(1.7)
    assert clipping_bound([5.0, 1.0, 4.0, 2.0, 3.0], 70) == pytest.approx(3.8)  # between the 3rd and 4th: 3 + .8
    assert clipping_bound([1.0, 9.0], 100) == 9.0
    assert clipping_bound([0.0, 0.0], 70) > 0


def test_afc_keeps_its_history_over_rounds_and_leaves_the_old_one_alone():
    memory: dict = {}
    for round, norms in enumerate(([1.0, 3.0] * 10, [4.0, 6.0] * 10), 1):
        me = client(round=round, memory=dict(memory))
        before = list(memory.get("afc.train", []))
        afc_turn(AFC(), me, norms, torch.rand(D))
        assert memory.get("afc.train", []) == before
        memory = me.memory
    assert memory == {"afc.train": [2.0, 5.0]}
    assert me.notes["clip"] == pytest.approx(2 + 0.7 * 3)


def test_afc_measures_the_batch_that_it_trains_on():
    (measured, trained), _ = afc_turn(AFC(), client(samples=100), [1.0], torch.rand(D))
    norms, fisher = measured
    assert isinstance(norms, GradientNorms) and isinstance(fisher, Fisher) and fisher.on is None
    assert len(set(norms.on.tolist())) == 20 and max(norms.on.tolist()) < 100
    assert torch.equal(trained.on, norms.on) and trained.plan.steps_for(20) == 1 and trained.plan.batch_size == 0


def test_afc_clips_its_one_step_by_weights():
    """C is the 50th percentile of one G = 2.5; norms 1 and 4 become factors 1 and 2.5 / 4."""
    plan = replace(PLAN, batch_size=2)
    (measured, trained), _ = afc_turn(AFC(percentile=50), client(samples=5, plan=plan), [1.0, 4.0], torch.rand(D), plan)
    expected = [1.0] * 5
    expected[measured[0].on.tolist()[1]] = 0.625
    assert trained.weights.tolist() == pytest.approx(expected) and trained.plan.clip == 0
    given = torch.tensor([0.5, 0.5, 0.5])
    weights = clipping_weights(torch.tensor([4.0, 100.0]), torch.tensor([2, 0]), 2.5, 3, given)
    assert weights.tolist() == pytest.approx([0.025, 0.5, 0.5]) and given.tolist() == [0.5] * 3


def test_clipping_by_weights_is_clipping_in_the_step():
    from covey.learn.flat import Network
    from covey.learn.initial import initial
    from covey.learn.machine import Machine
    from covey.learn.work import Job

    network = Network("fcnn", (8, 8), 10)
    random = torch.Generator().manual_seed(0)
    x, y = torch.rand(30, 8, 8, generator=random), torch.randint(0, 10, (30,), generator=random)
    machine, start, batch = Machine(network, x, y), initial(network, 3), torch.arange(5, 25)
    plan = Plan(lr=0.5, steps=1, batch_size=0)

    def compute(work):
        return machine.compute([Job(torch.arange(30), 1, work)])[0]

    norms = compute(GradientNorms(start, batch))
    clip = float(norms.median())
    weights = clipping_weights(norms, batch, clip, 30, None)
    one = compute(Train(start, replace(plan, clip=clip), on=batch))
    other = compute(Train(start, plan, on=batch, weights=weights))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    assert float((other - compute(Train(start, plan, on=batch))).abs().max()) > 1e-4


def test_afc_with_several_steps_trains_as_planned():
    plan = Plan(lr=0.1, epochs=1, batch_size=20)
    (_, trained), _ = afc_turn(AFC(), client(samples=100, plan=plan), [1.5], torch.rand(D), plan)
    assert trained.on is None and trained.plan == replace(plan, clip=1.5)


def test_afcs_noise_by_hand():
    """Î = 0, ½, 1 → α = 1.3, .8, .3; Δf = 2 · .1 · C / 20 with C = 4."""
    sigma = math.sqrt(2 * math.log(125000)) / 2
    fisher = torch.tensor([1.0, 2.0, 3.0])
    assert AFC(epsilon=2.0).sigmas(fisher, 3).tolist() == pytest.approx([1.3 * sigma, 0.8 * sigma, 0.3 * sigma])
    me, many = client(d=3 * D), fisher.repeat_interleave(D)
    _, model = afc_turn(AFC(epsilon=2.0), me, [4.0], many)
    for part, alpha in zip(model.view(3, D), (1.3, 0.8, 0.3)):
        assert float(part.std()) == pytest.approx(0.04 * alpha * sigma, rel=0.06)
    (event,) = me.events
    assert event.sigma == pytest.approx(0.3 * sigma) and event.sensitivity_from == PRIVATE
    assert event.sensitivity == pytest.approx(0.04)


def test_evenly_spread_noise_is_as_much_in_all():
    """α = 1.3, .8, .3 has the mean square (1.69 + .64 + .09) / 3 = 2.42/3."""
    sigma, fisher = LDP().sigma(1), torch.tensor([1.0, 2.0, 3.0])
    assert AFC(shape="equal").sigmas(fisher, 3).tolist() == pytest.approx([math.sqrt(2.42 / 3) * sigma] * 3)
    me = client(d=3)
    afc_turn(AFC(shape="equal"), me, [1.0], fisher)
    assert me.events[0].sigma == pytest.approx(math.sqrt(2.42 / 3) * sigma)


def test_constant_fisher_information_gives_the_most_noise():
    assert normalised(torch.full((5,), 0.3)).tolist() == [0.0] * 5
    me = client()
    _, model = afc_turn(AFC(), me, [1.0], torch.zeros(D))
    assert bool(torch.isfinite(model).all()) and me.events[0].sigma == pytest.approx(1.3 * LDP().sigma(1))


@given(
    st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=30),
    st.floats(1.01, 5),
)
def test_alpha_stays_between_beta_minus_one_and_beta(fisher, beta):
    alpha = AFC(beta=beta).sigmas(torch.tensor(fisher), len(fisher)) / LDP().sigma(1)
    assert bool((alpha > 0).all())
    assert beta - 1 - 1e-9 <= float(alpha.min()) and float(alpha.max()) <= beta + 1e-9
    if max(fisher) > min(fisher):
        assert float(alpha.min()) == pytest.approx(beta - 1)


def test_a_second_heads_parameters_get_full_noise_and_no_measurement():
    me = client(d=3)
    work = Train(torch.zeros(5), PLAN)
    work = replace(work, head=Head(torch.zeros(100, dtype=torch.int64)))
    asked, model = drive(AFC().train(me, work), [[torch.ones(20), torch.tensor([0.0, 1.0, 2.0])], torch.zeros(5)])
    assert asked[1].plan.clip == 1.0 and asked[1].weights is None
    assert asked[0][0].at.shape == (3,) and model.shape == (5,)


def test_noise_is_keyed_and_never_shared_between_two_trainings():
    def noises(round: int) -> list[torch.Tensor]:
        me = client(round=round)

        def twice(me):
            return (yield [Train(torch.zeros(D), PLAN), Losses(torch.zeros(1, D)), Train(torch.zeros(D), PLAN)])

        answers = [[torch.zeros(D), torch.zeros(1), torch.zeros(D)]]
        asked, (one, _, two) = drive(defend(LDP(), me, twice(me)), answers)
        # One list, work in its own positions: batched together, with the randomness of an undefended run.
        assert [type(work) for work in asked[0]] == [Train, Losses, Train] and len(asked) == 1
        return [one, two]

    (one, two), again, other = noises(1), noises(1), noises(2)
    assert torch.equal(one, again[0]) and torch.equal(two, again[1])
    assert not torch.equal(one, two) and not torch.equal(one, other[0])
    assert abs(float(np.corrcoef(one, two)[0, 1])) < 0.1


def test_regularisers_change_the_plan_and_book_nothing():
    for name, field in (("dropout", "dropout"), ("l2", "weight_decay")):
        me, defence = client(), DEFENCES[name](0.2)
        (asked,), _ = drive(defence.train(me, Train(torch.zeros(D), PLAN)), [torch.ones(D)])
        assert asked.plan == replace(PLAN, **{field: 0.2}) and me.events == []


@pytest.mark.parametrize(
    "table, word",
    [
        ({"name": "afc", "beta": 1.0}, "beta"),
        ({"name": "afc", "beta": 0.5}, "beta"),
        ({"name": "afc", "beta": math.nan}, "beta"),
        ({"name": "afc", "percentile": 101}, "percentile"),
        ({"name": "afc", "shape": "fischer"}, "shape"),
        ({"name": "afc", "epsilon": 0}, "epsilon"),
        ({"name": "ldp", "epsilon": -1}, "epsilon"),
        ({"name": "ldp", "epsilon": math.nan}, "epsilon"),
        ({"name": "ldp", "delta": 0}, "delta"),
        ({"name": "adp", "delta": 1}, "delta"),
        ({"name": "ldp", "clip": 0}, "clip"),
        ({"name": "ldp", "clip": math.inf}, "clip"),
        ({"name": "ldp", "sensitivity": "life"}, "sensitivity"),
        ({"name": "adp", "decay": 0}, "decay"),
        ({"name": "adp", "decay": 1.1}, "decay"),
        ({"name": "dp_sgd", "clip": -1}, "clip"),
        ({"name": "dp_sgd", "noise": -1}, "noise"),
        ({"name": "dp_sgd", "clip": math.inf}, "clip"),
        ({"name": "dp_sgd", "delta": 2}, "delta"),
        ({"name": "dropout", "rate": 1}, "rate"),
        ({"name": "l2", "weight_decay": -0.1}, "weight_decay"),
        ({"name": "dp_sgd", "sigma": 1}, "sigma"),
    ],
)
def test_bad_fields_are_refused_by_name(table, word):
    with pytest.raises(CoveyError, match=word):
        choose(DEFENCES, table, "defence")


def test_every_defence_has_defaults_a_name_and_a_title():
    for name, cls in DEFENCES.items():
        assert cls().name == name and len(cls.title) > 10
