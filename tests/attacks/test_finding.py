"""One finding, one verdict: by hand, read back with patience, and the same word wherever it is shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from covey.attacks.finding import LEAKS, NOT_MEASURED, NOTHING_SEEN, Finding, Scale
from covey.files import finite
from covey.messages import decode, encode


def finding(value: float, low: float | None, high: float | None, chance: float | None = 0.5, **more: Any) -> Finding:
    return Finding("x", "server", "accuracy", value, chance, low, high, **more)


def test_verdicts_by_hand() -> None:
    assert (finding(0.8, 0.7, 0.9).verdict, finding(0.8, 0.7, 0.9).why) == ("leaks", "above chance and controls")
    assert finding(0.95, 0.7, 1.0).verdict == "broken"
    assert finding(0.949, 0.7, 1.0).verdict == "leaks"
    calm = finding(0.6, 0.5, 0.7)  # chance is the end of the interval
    assert (calm.verdict, calm.why) == ("no leak seen", "chance lies in or above the interval")
    reached = finding(0.8, 0.7, 0.9, controls={"largest_cluster": 0.7, "another": 0.2})
    assert (reached.verdict, reached.why) == ("no leak seen", "its control “largest cluster” reaches as much")
    assert reached.best_control == ("largest_cluster", 0.7) and reached.bar == 0.7
    assert reached.excess == pytest.approx((0.8 - 0.7) / 0.3) and reached.open_end == 0.9
    assert finding(0.3, 0.2, 0.4).open_end is None  # no leak lies in it


def test_what_saw_too_little_is_not_measured() -> None:
    blind = finding(0.5, 0.0, 1.0)
    assert (blind.verdict, blind.why) == ("not measured", "it saw too little to tell")
    bare = finding(0.9, None, None)
    assert (bare.verdict, bare.why) == ("not measured", "above chance and controls, but without an interval")
    assert finding(0.4, None, None).why == "not above chance"
    alone = finding(0.9, 0.8, 1.0, chance=None)
    assert (alone.verdict, alone.why) == ("not measured", "nothing to compare with")
    assert finding(math.nan, 0.2, 0.9).verdict == "not measured"  # an area of one kind of case only
    assert finding(0.9, math.nan, 0.95).verdict == "not measured"
    assert finding(0.9, 0.8, 1.0, controls={"a placebo": math.nan}).verdict == "not measured"


def test_an_error_is_worse_the_smaller_it_is() -> None:
    """Guessing errs by 2.0, the best control by 1.6; who knows everything errs by 0."""

    def error(value: float, low: float, high: float) -> Finding:
        return finding(value, low, high, 2.0, controls={"mean": 1.6, "last": 1.9}, perfect=0.0)

    assert error(0.9, 0.0, 1.5).verdict == "leaks"  # from 0 to above 1, and yet not all there is
    assert error(1.0, 0.0, 2.0).verdict == "not measured"  # from perfect to guessing
    assert error(1.2, 1.0, 1.7).why == "its control “mean” reaches as much"
    assert error(1.8, 1.7, 2.1).why == "chance lies in or below the interval"
    assert error(1.2, 1.0, 1.7).open_end == 1.0 and error(1.2, 1.0, 1.7).best_control == ("mean", 1.6)
    assert error(0.4, 0.3, 0.5).excess == pytest.approx(0.75)
    assert Scale(2.0, (1.6,), 0.0).excess(0.4) == pytest.approx(0.75)


def test_a_finding_is_read_back_as_it_was_written() -> None:
    stronger = finding(0.9, 0.8, 0.95, means="share of all", used="noise")
    whole = finding(0.6, 0.4, 0.8, controls={"a": 0.3}, details={"rounds": [1, 2]}, means="share", variants=[stronger])
    content = json.loads(json.dumps(whole.json()))
    assert content["verdict"] == "no leak seen" and content["variants"][0]["verdict"] == "leaks"
    assert Finding.of("x", content) == whole
    assert decode(encode(whole)) == whole


def test_older_and_foreign_results_are_judged_anew() -> None:
    older = {"vantage": "server", "metric": "F1", "value": 0.0, "chance": 0.0, "low": 0.0, "high": 1.0}
    read = Finding.of("category", {**older, "verdict": "no leak seen"})
    assert read is not None and (read.verdict, read.perfect, read.means) == ("not measured", 1.0, "")
    bare = Finding.of("x", {"value": 0.9, "verdict": "leaks"})
    assert bare is not None and (bare.verdict, bare.why, bare.metric) == (
        "not measured",
        "nothing to compare with",
        "score",
    )
    odd = {"value": 1, "chance": "many", "low": [], "controls": {"a": 0.5, "b": None, "c": "x"}, "details": 3}
    read = Finding.of("x", {**odd, "variants": [7, {"attack": "y", "value": 0.2}]})
    assert read is not None and read.controls == {"a": 0.5} and [v.attack for v in read.variants] == ["y"]
    for nothing in (None, 3, {}, {"value": None}, {"value": 10**400}, {"value": True}):
        assert Finding.of("x", nothing) is None
    assert Finding.of("x", finite(finding(math.nan, 0.0, 1.0).json())) is None  # JSON has no word for it


def test_an_interval_from_chance_to_broken_says_nothing() -> None:
    """Four clients: 0.7, but anything from 0 to 0.97 may be true. Not "no leak seen", and still one of many to be pooled."""
    few = finding(0.7, 0.0, 0.97, chance=0.0)
    assert few.verdict == NOT_MEASURED and few.undecided and few.measured and "too little" in few.why
    assert finding(0.7, 0.0, 0.9, chance=0.0).verdict == NOTHING_SEEN
    assert finding(0.7, 0.1, 0.97, chance=0.0).verdict == LEAKS
    reached = finding(0.9, 0.85, 0.95, controls={"largest": 0.9})  # far above chance: its control reaches as much
    assert reached.verdict == NOTHING_SEEN
    error = finding(0.5, 0.04, 1.0, chance=1.0, perfect=0.0)  # less is worse
    assert error.verdict == NOT_MEASURED and replace(error, low=0.2).verdict == NOTHING_SEEN


def test_the_strongest_of_an_attacks_variants_is_what_is_told_in_one_line() -> None:
    """Where a variant shows a worse leak; else the attack itself, whatever the variants' scores."""
    quiet = Finding("a", "server", "share", 0.1, 0.1, 0.0, 0.2, {"guess": 0.1}, means="how to read it")
    leaky = Finding("a_b", "server", "share", 0.6, 0.1, 0.4, 0.8, {"guess": 0.1})
    broken = Finding("a_c", "server", "share", 1.0, 0.1, 0.9, 1.0, {"guess": 0.1})
    assert quiet.strongest is quiet
    found = replace(quiet, variants=[leaky, broken]).strongest
    assert found.attack == "a_c" and found.means == "how to read it"
    assert [one.attack for one in found.variants] == ["a", "a_b"]
    whole = replace(broken, variants=[leaky, quiet])
    assert whole.strongest is whole
