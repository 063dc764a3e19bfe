"""The ledger: known figures of the papers, composition over clients and rounds, caveats, speed."""

import json
import math
import time
from dataclasses import dataclass

import pytest

from covey.errors import CoveyError
from covey.ledger import accountants
from covey.ledger.calibration import analytic_epsilon, classic_sigma
from covey.ledger.events import PRIVATE, GaussianRelease, LaplaceRelease, SubsampledGaussian
from covey.ledger.pricing import price
from covey.ledger.statements import EXACT
from covey.messages import decode, encode


def release(sigma: float, **more) -> GaussianRelease:
    values = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 0.01, "mechanism": "ldp"} | more
    return GaussianRelease(sigma=sigma, **values)


@pytest.mark.parametrize("sigma, printed", [(0.5, (9.23,)), (0.2, (33.13, 33.14))])
def test_the_property_papers_epsilon_is_that_of_one_step(sigma, printed):
    """Its text prints 9.23 for σ = .5, and both 33.13 and 33.14 for σ = .2, over runs of 5,000 rounds of one step each."""
    run = [(t, 0, SubsampledGaussian(sampling=0.185, noise=sigma, steps=1, uses=1)) for t in range(1, 5001)]
    entry = price(run)["dp_sgd"]
    assert round(entry["per_step"]["moments_accountant"], 2) in printed
    assert entry["per_step"]["epsilon"] < entry["per_step"]["moments_accountant"]  # today's conversion is tighter
    assert entry["epsilon"] > 100 * printed[0]  # what the whole run spends
    assert entry["total"]["steps"] == 5000 and entry["rounds"] == 5000


def test_pqfeds_epsilon_is_per_coordinate():
    entry = price([(0, c, LaplaceRelease(1.0, 50, 4.0, PRIVATE, mechanism="pqfed")) for c in range(3)])["pqfed"]
    assert entry["per_step"] == {"per_coordinate": 1.0, "per_record": 50.0, "coordinates": 50}
    assert entry["epsilon"] == 50.0 and entry["delta"] == 0.0 and entry["composition"] == "basic"
    assert entry["total"]["per_record_by_rdp"]["epsilon"] < 50.0
    assert "per coordinate" in entry["caveat"] and "private data" in entry["caveat"]
    twice = price([(t, 0, LaplaceRelease(1.0, 50, 4.0)) for t in range(2)])["laplace"]
    assert twice["epsilon"] == 100.0 and "private data" not in twice["caveat"]


def test_a_gaussian_release_states_the_papers_sigma_beside_the_exact_figure():
    entry = price([(1, 0, release(classic_sigma(0.5, 1e-5), epsilon=0.5))])["ldp"]
    assert entry["per_step"]["claimed"] == 0.5
    assert entry["per_step"]["classic"] == pytest.approx(0.5) and entry["per_step"]["classic_is_proved"]
    assert entry["epsilon"] == entry["per_step"]["analytic"] < 0.5
    assert "not proved" not in entry["caveat"]
    high = price([(1, 0, release(classic_sigma(8.0, 1e-5), epsilon=8.0))])["ldp"]
    assert not high["per_step"]["classic_is_proved"] and "not proved above ε = 1" in high["caveat"]


def test_afcs_worst_coordinate_has_epsilon_over_beta_minus_one():
    sigma = (1.3 - 1) * classic_sigma(1.0, 1e-5)
    entry = price([(1, 0, release(sigma, sensitivity_from=PRIVATE, mechanism="afc"))])["afc"]
    assert entry["per_step"]["classic"] == pytest.approx(1 / 0.3)
    assert "3.333" in entry["caveat"] and "private data" in entry["caveat"]
    assert entry["sensitivity"]["from"] == PRIVATE


def test_gaussian_rounds_compose_to_one_release_with_root_t_less_noise():
    entry = price([(t, 0, release(5.0)) for t in range(100)])["ldp"]
    assert entry["epsilon"] == pytest.approx(analytic_epsilon(0.5, 1e-5))


def test_steps_beyond_the_calibrated_one_are_priced():
    one, many = price([(1, 0, release(5.0))])["ldp"], price([(1, 0, release(5.0, growth=10.0))])["ldp"]
    assert many["epsilon"] == pytest.approx(analytic_epsilon(0.5, 1e-5)) and many["epsilon"] > 10 * one["epsilon"]
    assert "10 times as far" in many["caveat"] and "times as far" not in one["caveat"]


def test_totals_are_per_client_worst_and_mean():
    spends = [(1, 0, release(5.0)), (1, 1, release(5.0)), (2, 1, release(5.0))]
    entry = price(spends)["ldp"]
    few, more = analytic_epsilon(5.0, 1e-5), analytic_epsilon(5.0 / math.sqrt(2), 1e-5)
    assert entry["total"]["client"] == 1 and entry["epsilon"] == pytest.approx(more)
    assert entry["total"]["mean"] == pytest.approx((few + more) / 2)
    assert (entry["clients"], entry["rounds"]) == (2, 2)


def test_mechanisms_are_priced_apart_and_delta_can_be_chosen():
    spends = [(1, 0, release(5.0)), (1, 0, SubsampledGaussian(0.1, 1.0, 5, 1))]
    ledger = price(spends)
    assert set(ledger) == {"ldp", "dp_sgd"}
    assert price(spends, delta=1e-9)["ldp"]["epsilon"] > ledger["ldp"]["epsilon"]
    assert price([(1, 0, release(5.0, delta=1e-3))])["ldp"]["delta"] == 1e-3
    with pytest.raises(CoveyError, match="delta"):
        price(spends, delta=0.0)


def test_full_batches_need_no_amplification_so_the_exact_figure_leads():
    entry = price([(t, 0, SubsampledGaussian(1.0, 2.0, 1, 1)) for t in range(10)])["dp_sgd"]
    assert entry["epsilon"] == pytest.approx(analytic_epsilon(2 / math.sqrt(10), 1e-5))
    assert "Poisson" not in entry["caveat"] and entry["composition"] == "exact for Gaussian noise"


def test_what_is_proved_for_the_batches_that_were_drawn_leads():
    """σ = 1, q = .1, 10 epochs of 10 steps: ε = 17.86 for shuffled batches, whatever Poisson's 7.91 promises others."""
    shuffled = price([(t, 0, SubsampledGaussian(0.1, 1.0, 10, 1)) for t in range(10)])["dp_sgd"]
    assert shuffled["epsilon"] == pytest.approx(analytic_epsilon(1 / math.sqrt(10), 1e-5))
    assert shuffled["epsilon"] == pytest.approx(17.857, abs=1e-3) and shuffled["composition"] == EXACT
    assert shuffled["epsilon"] == shuffled["total"]["without_amplification"]
    assert "no amplification by sampling is proved" in shuffled["caveat"] and "7.908" in shuffled["caveat"]
    sampled = price([(t, 0, SubsampledGaussian(0.1, 1.0, 10, 10, poisson=True)) for t in range(10)])["dp_sgd"]
    assert sampled["epsilon"] == shuffled["total"]["with_poisson_sampling"] == pytest.approx(poisson_epsilon(100))
    assert sampled["composition"] == "RDP" and "no amplification" not in sampled["caveat"]
    mixed = price(
        [(1, 0, SubsampledGaussian(0.1, 1.0, 10, 1)), (2, 0, SubsampledGaussian(0.1, 1.0, 10, 10, poisson=True))]
    )
    assert mixed["dp_sgd"]["epsilon"] == mixed["dp_sgd"]["total"]["without_amplification"]


def test_a_sample_is_priced_for_every_batch_of_a_round_that_it_is_in():
    """Three epochs in each of two rounds: six releases of σ = 1, not two; by hand, one of σ = 1/√6."""
    entry = price([(t, 0, SubsampledGaussian(0.1, 1.0, 30, 3)) for t in range(2)])["dp_sgd"]
    assert entry["epsilon"] == pytest.approx(analytic_epsilon(1 / math.sqrt(6), 1e-5))
    once = price([(t, 0, SubsampledGaussian(0.1, 1.0, 30, 1)) for t in range(2)])["dp_sgd"]
    assert once["epsilon"] < entry["epsilon"]


def test_one_poisson_step_at_full_rate_is_the_plain_gaussian():
    """Amplification never costs: the smaller of two true figures leads."""
    entry = price([(1, 0, SubsampledGaussian(1.0, 2.0, 1, 1, poisson=True))])["dp_sgd"]
    assert entry["epsilon"] == pytest.approx(analytic_epsilon(2.0, 1e-5)) and entry["composition"] == EXACT


def poisson_epsilon(steps: int) -> float:
    """By dp-accounting alone."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    return float(RdpAccountant(accountants.ORDERS).compose(event, steps).get_epsilon(1e-5))


def test_repeated_laplace_releases_add_up_in_both_readings():
    """Five selections of 50 coordinates at ε = .1: by RDP 7.84, not the 3.00 of one."""
    from dp_accounting import LaplaceDpEvent
    from dp_accounting.rdp import RdpAccountant

    entry = price([(t, 0, LaplaceRelease(0.1, 50, 4.0)) for t in range(5)])["laplace"]
    expected = RdpAccountant().compose(LaplaceDpEvent(1 / 0.1), 250).get_epsilon(1e-5)
    assert entry["total"]["per_record_by_rdp"]["epsilon"] == pytest.approx(expected) == pytest.approx(7.836, abs=1e-3)
    assert entry["epsilon"] == pytest.approx(25.0)
    two = [
        (1, 0, LaplaceRelease(0.1, 50, 4.0)),
        (2, 0, LaplaceRelease(0.2, 20, 4.0)),
        (1, 1, LaplaceRelease(0.1, 50, 4.0)),
    ]
    mixed = RdpAccountant().compose(LaplaceDpEvent(10.0), 50).compose(LaplaceDpEvent(5.0), 20).get_epsilon(1e-5)
    assert price(two)["laplace"]["total"]["per_record_by_rdp"]["epsilon"] == pytest.approx(mixed)


def test_the_grid_of_secret_noise_is_priced():
    """Neighbours on a grid are √d steps further apart: 1/σ grows by what the source says."""
    plain, gridded = (
        price([(1, 0, release(5.0))])["ldp"],
        price([(1, 0, release(5.0, rounding=0.1, secret=True))])["ldp"],
    )
    assert (
        gridded["epsilon"] == pytest.approx(analytic_epsilon(1 / (1 / 5 + 0.1), 1e-5))
        and gridded["epsilon"] > plain["epsilon"]
    )
    assert gridded["per_step"]["sigma"] == 5.0
    steps = price([(1, 0, SubsampledGaussian(1.0, 2.0, 1, 1, rounding=0.5, secret=True))])["dp_sgd"]
    assert steps["epsilon"] == pytest.approx(analytic_epsilon(1.0, 1e-5))
    features = price([(1, 0, LaplaceRelease(1.0, 50, 4.0, rounding=0.01, secret=True))])["laplace"]
    assert features["epsilon"] == pytest.approx(50.5)


def test_the_ledger_says_whether_noise_is_secret():
    keyed, secret = price([(1, 0, release(5.0))])["ldp"], price([(1, 0, release(5.0, secret=True))])["ldp"]
    assert keyed["noise"] == "keyed: reproducible, not secret" and "keyed by a seed" in keyed["caveat"]
    assert secret["noise"].startswith("secret: from the operating system") and "keyed" not in secret["caveat"]
    mixed = price([(1, 0, release(5.0)), (2, 0, release(5.0, secret=True))])["ldp"]
    assert mixed["noise"] == keyed["noise"]


def test_no_noise_is_no_guarantee_and_still_valid_json():
    ledger = price([(1, 0, SubsampledGaussian(0.1, 0.0, 5, 1)), (1, 0, release(0.0, epsilon=math.inf))])
    for entry in ledger.values():
        assert entry["epsilon"] is None and entry["caveat"].startswith("No noise was added")
    json.dumps(ledger, allow_nan=False)


def test_what_cannot_be_priced_raises():
    @dataclass(frozen=True)
    class Rumour:
        mechanism: str = "rumour"

    with pytest.raises(CoveyError, match="cannot price a Rumour"):
        price([(1, 0, Rumour())])
    with pytest.raises(CoveyError, match="several kinds"):
        price([(1, 0, release(1.0, mechanism="x")), (1, 0, LaplaceRelease(1.0, 1, 1.0, mechanism="x"))])
    assert price([]) == {}


def test_events_survive_the_codec():
    events = [release(2.0), SubsampledGaussian(0.1, 1.0, 5, 1), LaplaceRelease(1.0, 50, 4.0, PRIVATE)]
    assert decode(encode(events)) == events


def test_equal_histories_are_priced_once(monkeypatch):
    asked = []
    real = accountants.subsampled_gaussian_epsilon
    monkeypatch.setattr(accountants, "subsampled_gaussian_epsilon", lambda *a: asked.append(a) or real(*a))
    price([(t, c, SubsampledGaussian(0.1, 1.0, 5, 1)) for t in range(3) for c in range(120)])
    assert len(asked) == 2  # one history, and one step


def test_five_thousand_rounds_are_priced_within_a_second():
    price([(0, 0, SubsampledGaussian(0.3, 1.0, 1, 1))])  # loads the library
    spends = [(t, c, SubsampledGaussian(0.185, 0.5, 1, 1)) for t in range(5000) for c in range(10)]
    spends += [(t, c, release(5 * 0.9995**t, mechanism="adp")) for t in range(5000) for c in range(10)]
    begin = time.process_time()
    price(spends)
    assert time.process_time() - begin < 1.0


def test_many_sampling_rates_are_rounded_up_never_down():
    exact = price([(1, 0, SubsampledGaussian(1 / 17, 1.0, 100, 100, poisson=True))])["dp_sgd"]["epsilon"]
    many = price([(1, c, SubsampledGaussian(1 / (c + 17), 1.0, 100, 100, poisson=True)) for c in range(40)])["dp_sgd"]
    assert exact <= many["epsilon"] < exact * 1.1 and many["total"]["client"] == 0
