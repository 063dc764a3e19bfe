"""The one rule: by hand, by property, on the stored tables, and against what pairing would have said."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import CoveyError
from covey.papers.cells import Cell, Sheet, at, average, cell, difference, independent
from covey.papers.claims import judged, tally
from covey.papers.harness import rejudged, stored
from covey.papers.verdict import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNMEASURED,
    VERDICTS,
    Claim,
    Estimate,
    Part,
    Range,
    Statement,
    above,
    below,
    conjunction,
    estimate,
    judge,
    within,
)
from covey.statistics import student

DOCS = Path(__file__).parents[2] / "docs"
T2 = 4.30265  # 97.5 % of Student's t with two degrees of freedom


def sheet(**rows: list[float]) -> Sheet:
    return Sheet([cell(row, "x", values) for row, values in rows.items()])


def forgetful(full: Sheet) -> Sheet:
    """As files stored before the seeds' values were."""
    return Sheet([Cell(c.row, c.column, c.ours, c.std, c.n, c.paper, c.unit) for c in full.cells])


def verdict(full: Sheet, effect: object, asked: Range) -> str:
    return judge(Statement("s", [Part("", effect, asked)]), full).verdict  # type: ignore[arg-type]


A_B = at("a", "x") - at("b", "x")


def test_paired_by_seed_by_hand() -> None:
    # Differences .10, .11, .12: mean .11, half-width 4.30265 · .01 / √3.
    found = estimate(A_B, sheet(a=[0.70, 0.81, 0.62], b=[0.60, 0.70, 0.50]))
    half = T2 * 0.01 / math.sqrt(3)
    assert found is not None
    assert (found.value, found.widest, found.n) == pytest.approx((0.11, half, 3), rel=1e-4)
    claim = judge(Statement("s", [Part("gap", A_B, above(0.05))]), sheet(a=[0.70, 0.81, 0.62], b=[0.60, 0.70, 0.50]))
    assert claim.verdict == HOLDS and "gap: +11 points [8.516, 13.48, n = 3] (asked: above 5)" in claim.why
    assert claim.effects[0].exact and claim.decisive == claim.effects[0]


def test_each_verdict_by_hand() -> None:
    clear, unclear = sheet(a=[0.7, 0.715, 0.72], b=[0.6, 0.61, 0.62]), sheet(a=[0.62, 0.66], b=[0.6, 0.6])
    assert verdict(clear, A_B, above()) == HOLDS
    assert verdict(clear, A_B, below()) == FAILS
    assert verdict(unclear, A_B, above()) == verdict(unclear, A_B, below()) == UNDECIDED
    assert verdict(clear, A_B, within(0.05)) == FAILS and verdict(clear, A_B, within(0.2)) == HOLDS
    assert verdict(unclear, A_B, within(0.05)) == UNDECIDED  # failing to reject is no equivalence
    assert verdict(sheet(a=[0.7], b=[0.6]), A_B, above()) == UNDECIDED  # one run has no interval
    assert verdict(sheet(a=[], b=[0.6]), A_B, above()) == UNMEASURED
    assert verdict(sheet(b=[0.6, 0.5]), A_B, above()) == UNMEASURED
    assert verdict(sheet(a=[math.nan, 0.1], b=[0.6, 0.5]), A_B, above()) == UNMEASURED


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
    st.floats(0.001, 0.3),
)
def test_an_interval_that_spans_nothing_never_holds_and_no_failure_to_reject_is_no_help(
    pairs: list[tuple[float, float]], margin: float
) -> None:
    full = sheet(a=[a for a, _ in pairs], b=[b for _, b in pairs])
    mean = student([a - b for a, b in pairs])
    for known in (full, forgetful(full)):
        if mean.low < -1e-9 and mean.high > 1e-9:
            assert verdict(known, A_B, above()) == verdict(known, A_B, below()) == UNDECIDED
        if mean.high > margin + 1e-9 and mean.low < margin - 1e-9:  # helps, perhaps, by more than the margin
            assert verdict(known, A_B, below(margin)) == UNDECIDED
            assert verdict(known, A_B, within(margin)) != HOLDS


@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.0, 1.0), st.floats(-0.2, 0.2))
def test_what_is_decided_without_the_seeds_is_what_pairing_would_have_said(
    n: int, seed: int, common: float, margin: float
) -> None:
    random = np.random.default_rng(seed)
    shared = common * random.normal(size=n)
    rows = {r: (0.1 * (shared + (1 - common) * random.normal(size=n))).tolist() for r in "abc"}
    full = sheet(**rows)
    for effect in (A_B, average([A_B, at("c", "x") - at("b", "x")]), at("a", "x"), A_B - 0.05):
        for asked in (above(margin), within(abs(margin) + 0.01)):
            exact, blind = verdict(full, effect, asked), verdict(forgetful(full), effect, asked)
            assert blind in (exact, UNDECIDED)


def test_a_single_cell_needs_no_seeds() -> None:
    full = sheet(a=[0.91, 0.93, 0.95])
    assert estimate(at("a", "x"), full) == pytest.approx(estimate(at("a", "x"), forgetful(full)))  # type: ignore[comparison-overlap]


def test_words_say_where_the_seeds_are_missed() -> None:
    full = sheet(a=[0.70, 0.80, 0.90], b=[0.61, 0.70, 0.80])
    said = Statement("s", [Part("", A_B, above())])
    assert judge(said, full).verdict == HOLDS
    lost = judge(said, forgetful(full))
    assert lost.verdict == UNDECIDED and "Not decidable from what is stored" in lost.why and not lost.effects[0].exact
    pair = Cell(difference("a", "b"), "x", 0.0967, 0.0058, 3, None)  # as prose of an older file told it
    told = Sheet([*forgetful(full).cells, pair])
    assert judge(said, told).verdict == HOLDS and told.rows == ["a", "b"]


def test_equal_seeds_are_not_certainty() -> None:
    sure = Sheet(
        [cell("a", "x", [1.0] * 3), cell("b", "x", [1.0] * 3, trials=120), cell("c", "x", [0.0] * 3, trials=120)]
    )
    # Wilson over three runs: from 1/(1 + z²/3) on; over 360 clients: from 1/(1 + z²/360) on.
    low = {row: estimate(at(row, "x"), sure).widest for row in "abc"}  # type: ignore[union-attr]
    assert low["a"] == pytest.approx(1 - 1 / (1 + 1.96**2 / 3), abs=1e-4)
    assert [low["b"], low["c"]] == pytest.approx([0.010558] * 2, abs=1e-6)
    assert verdict(sure, at("a", "x"), above(0.99)) == UNDECIDED == verdict(sure, at("b", "x"), above(0.99))
    assert verdict(sure, at("b", "x"), above(0.98)) == HOLDS == verdict(sure, at("b", "x") - at("c", "x"), above(0.9))
    assert verdict(sure, at("b", "x"), below(0.5)) == FAILS
    without = Sheet([Cell("b", "x", 1.0, 0.0, 3, None, "%", [], 120)])
    assert estimate(at("b", "x"), without).widest == pytest.approx(low["b"])  # type: ignore[union-attr]
    bytes_ = Sheet([cell("a", "x", [5.0, 5.0], unit="MB")])
    assert "5 MB, the same in every run (n = 2" in judge(Statement("s", [Part("", at("a", "x"), above())]), bytes_).why


@pytest.mark.parametrize("first", [[7.0] * 3, [6.0, 7.0, 9.0]])
def test_whole_rounds_hide_what_rounding_took(first: list[float]) -> None:
    sheet = Sheet([cell("a", "x", first, unit="rounds"), cell("b", "x", [v - 2 for v in first], unit="rounds")])
    found = estimate(at("a", "x") - at("b", "x"), sheet)
    assert found is not None
    assert (found.value, found.widest) == (2.0, pytest.approx(4.303 * (2 / 12 / 3) ** 0.5, abs=1e-3))


def test_the_same_difference_in_every_run_is_not_certainty() -> None:
    """One client of 120 more in each of three runs, which differ: chance. Rows that are equal run by run are one computation."""
    tested = [0.5, 0.6, 0.7]
    full = Sheet(
        [
            cell("a", "x", tested, trials=120),
            cell("b", "x", [v + 1 / 120 for v in tested], trials=120),
            cell("c", "x", tested, trials=120),
        ]
    )
    assert verdict(full, at("b", "x") - at("a", "x"), above()) == UNDECIDED
    assert verdict(full, at("b", "x") - at("a", "x"), within(0.2)) == HOLDS
    assert verdict(full, at("c", "x") - at("a", "x"), within(0.01)) == HOLDS


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_a_spread_that_is_not_known_decides_nothing(values: list[float]) -> None:
    unknown = Sheet([Cell("a", "x", 5.0, math.nan if values else None, 2, None, "MB", values)])
    assert verdict(unknown, at("a", "x"), above()) == UNDECIDED


def test_shares_end_at_a_hundred_percent() -> None:
    full = sheet(a=[0.99, 0.95, 0.999], leak=[-0.01, 0.02, 0.01])
    (effect,) = judge(Statement("s", [Part("", at("a", "x"), above(0.9))]), full).effects
    assert effect.high == 100.0 and effect.verdict == HOLDS and effect.low == pytest.approx(91.487, abs=1e-3)
    (effect,) = judge(Statement("s", [Part("", at("leak", "x"), above())]), full).effects
    assert effect.low is not None and effect.low < 0  # a column of differences


def test_cells_that_share_no_seeds() -> None:
    # Welch: variances 1e-4/3 and 4e-4/5 add up, about five degrees of freedom.
    full = Sheet([cell("a", "x", [0.69, 0.70, 0.71]), cell("b", "x", [0.58, 0.60, 0.60, 0.62, 0.60])])
    found = estimate(independent(A_B), full)
    assert found is not None and found.widest == found.narrowest
    from scipy.stats import ttest_ind

    low, high = ttest_ind(full.cells[0].values, full.cells[1].values, equal_var=False).confidence_interval()
    assert (found.value - found.widest, found.value + found.widest) == pytest.approx((low, high))


def test_what_is_known_from_one_side_decides_on_that_side_only() -> None:
    for side, sure, open_to in (("at least", 10.0, above()), ("at most", -10.0, below())):
        assert Estimate(sure, 2.0, 2.0, 3, side).verdict(open_to) == HOLDS
        assert (
            Estimate(-sure, 2.0, 2.0, 3, side).verdict(open_to) == UNDECIDED
        )  # the rest of the rounds may say otherwise
    assert Estimate(-10.0, 2.0, 2.0, 3, "at most").verdict(above()) == FAILS


def test_a_sentence_holds_if_all_of_it_does() -> None:
    assert conjunction([HOLDS, HOLDS]) == HOLDS
    assert conjunction([HOLDS, UNDECIDED]) == conjunction([HOLDS, UNMEASURED]) == UNDECIDED
    assert conjunction([HOLDS, FAILS, UNMEASURED]) == FAILS
    assert conjunction([]) == conjunction([UNMEASURED]) == UNMEASURED
    with pytest.raises(CoveyError, match="verdict"):
        Claim("", "partly", "")


def test_every_stored_verdict_is_the_rules() -> None:
    """docs/results was judged by the rule as it is, and nothing in it claims more than its interval."""
    for reproduction in stored(DOCS):
        again = rejudged(reproduction)
        assert [(c.text, c.verdict) for c in reproduction.claims] == [(c.text, c.verdict) for c in again.claims], (
            f"{reproduction.name} was judged by another rule: run `covey reproduce --docs`"
        )
        for claim in again.claims:
            assert claim.effects
            for e in claim.effects:
                if (
                    e.asked in ("above 0", "below 0")
                    and e.low is not None
                    and e.high is not None
                    and e.low < 0 < e.high
                ):
                    assert e.verdict == UNDECIDED, (reproduction.name, claim.text, e)
                if e.low is None:
                    assert e.verdict in (UNDECIDED, UNMEASURED)


def test_claims_as_rows() -> None:
    rows = judged(DOCS)
    counts = tally(rows)
    assert sum(n for by in counts.values() for n in by.values()) == len(rows) > 300
    assert {"mingledpie", "fedcaprivacy", "afc_cfl", "pqfed", "property_inference"} <= counts.keys()
    assert all(set(by) == set(VERDICTS) for by in counts.values())
    assert all((row.effect is None) == (not row.effects) and row.whose in ("paper", "ours") for row in rows)


def test_equal_differences_of_uncounted_shares_and_draws_of_one_partition_decide_nothing_more() -> None:
    sheet = Sheet([cell("a", "x", [0.9, 0.8]), cell("b", "x", [0.8999, 0.7999]), cell("c", "x", [0.9, 0.8])])
    gap = judge(Statement("", [Part("", at("a", "x") - at("b", "x"), above())]), sheet)
    assert gap.verdict == UNDECIDED and gap.effects[0].low is None
    same = judge(Statement("", [Part("", at("a", "x") - at("c", "x"), within(0.1))]), sheet)
    assert same.verdict == HOLDS  # equal seed by seed: one computation under two names
    few = estimate(at("a", "x"), sheet)
    assert few is not None and estimate(at("a", "x"), sheet, units=50) == few  # no more repetitions than values


def test_of_several_parts_the_worst_comes_first() -> None:
    sheet = Sheet([cell(row, "x", [v - 0.001, v, v + 0.001]) for row, v in (("a", 0.8), ("b", 0.6), ("c", 0.95))])
    for asked, worst in ((above(0.5), "b"), (below(0.97), "c"), (above(0.9), "b"), (below(0.5), "c")):
        claim = judge(Statement("", [Part(row, at(row, "x"), asked) for row in "abc"]), sheet)
        assert claim.decisive is not None and claim.decisive.name == worst
