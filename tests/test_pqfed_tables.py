"""The paper's tables: every experiment can be built, and verdicts follow from intervals."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.experiment import Experiment
from covey.papers import pqfed
from covey.papers.harness import Options, Outcome


@pytest.mark.parametrize("dataset", ["cifar10", "mnist"])
@pytest.mark.parametrize("quick", [False, True])
def test_every_experiment_can_be_built(tmp_path: Path, dataset: str, quick: bool) -> None:
    options = Options(tmp_path, dataset=dataset, quick=quick)
    for rates in pqfed.SETUPS.values():
        assert Experiment.of(pqfed.experiment(options, rates, "fedavg")).clients == 1 + len(rates)
    for under in pqfed.UNDER.values():
        made = Experiment.of(pqfed.experiment(options, pqfed.RATES, {"name": "pqfed", "under": under}))
        assert made.algorithm.under.name == under["name"]
        assert made.partition.rates == pqfed.RATES


def test_printed_figures_have_one_entry_per_experiment() -> None:
    assert all(len(row) == len(pqfed.SETUPS) for row in pqfed.TABLE2.values())
    for table in (pqfed.TABLE45, pqfed.TABLE78):
        assert all(len(row) == len(pqfed.RATES) for by_name in table.values() for row in by_name.values())


def test_verdicts_follow_from_the_interval() -> None:
    clear = pqfed._above("", [0.70, 0.71, 0.72], [0.60, 0.61, 0.62], 0.03)
    assert clear.verdict == "holds" and "+10.00 ± 0.00" in clear.why
    # Gaps .02 and .06: 4 ± 12.7 · .0283 / √2 = 4 ± 25.4 points.
    unclear = pqfed._above("", [0.62, 0.66], [0.60, 0.60], 0.03)
    assert unclear.verdict == "partly" and "+4.00 ± 25.41" in unclear.why and "undecided" in unclear.why
    assert pqfed._above("", [0.60, 0.61, 0.62], [0.70, 0.71, 0.72]).verdict == "does not hold"
    assert pqfed._above("", [0.7], [0.6]).verdict == "not tested"


def test_a_peak_at_the_end_is_no_fall() -> None:
    rise, fall = pqfed._rises_and_falls("FedAvg", {6: [0.5, 0.5], 9: [0.6, 0.61], 16: [0.7, 0.71]})
    assert rise.verdict == "holds" and fall.verdict == "does not hold"
    assert fall.why == "Experiment 16 is itself the best."


def test_costs_are_counted_from_the_records() -> None:
    records = [{"participants": n, "bytes": {"up": 1e6, "down": 2e6}} for n in (12, 5, 5)]
    selected = Outcome({"algorithm": "pqfed"}, records)
    assert pqfed.megabytes(selected) == 66.0
    assert pqfed.passes(selected, 0) == 30.0  # the selection trains nothing
    assert pqfed.passes(Outcome({"algorithm": "ifca"}, records), 4) == 154.0
