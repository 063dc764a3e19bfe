"""The pictures that findings bring along, as the report draws them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from covey.report.findings import place_of, read_findings, remarks
from covey.report.sections.pictures import pictures_of
from covey.report.sections.privacy import attacks
from covey.results.contents import Run

MAP = {"kind": "scatter", "title": "t-SNE of updates", "x": [0.0, 1.0, 4.0], "y": [2.0, 2.0, -2.0]}
MAP["label"] = ["other", "other", "property"]
BINS = {"kind": "histogram", "title": "cosine: mean 0.3", "edges": [-1.0, 0.0, 1.0], "counts": [1, 3], "of": "cosine"}
CURVE = {"kind": "line", "title": "share obtained, by number of colluders", "x": [1, 2, 3], "y": [0.25, 0.5, 1.0]}


def test_a_map_has_a_dot_for_each_point_and_the_rarer_kind_on_top() -> None:
    drawn = pictures_of({"pictures": [MAP]})
    dots = re.findall(r'<circle cx="([^"]+)" cy="([^"]+)" r="4" class="dot (\w+)"', drawn)
    assert dots == [("0%", "0", "c0"), ("25%", "0", "c0"), ("100%", "230", "c1")]
    assert "<h3>t-SNE of updates</h3>" in drawn
    assert "property <b>1</b>" in drawn and "other <b>2</b>" in drawn


def test_bars_of_a_histogram_are_as_wide_as_their_bins_and_as_high_as_their_counts() -> None:
    drawn = pictures_of({"pictures": [BINS]})
    bars = re.findall(r'<rect x="([^"]+)" width="([^"]+)" y="([^"]+)" height="([^"]+)"', drawn)
    assert [(x, width) for x, width, _, _ in bars] == [("0%", "50%"), ("50%", "50%")]
    low, high = (float(height) for _, _, _, height in bars)
    assert high == pytest.approx(3 * low, rel=1e-3)
    assert "Mean 0.3." in drawn and ">cosine</text>" in drawn


def test_a_curve_names_what_it_runs_over() -> None:
    drawn = pictures_of({"pictures": [CURVE]})
    assert "number of colluders</text>" in drawn and drawn.count('class="line') == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "hologram"},
        {**MAP, "y": [1.0]},
        {**MAP, "x": [0.0, math.nan, 1.0]},
        {**BINS, "edges": [0.0, 1.0]},
        {**BINS, "counts": [1, -3]},
        {**CURVE, "y": ["much", 1.0, 1.0]},
        {"kind": "table", "head": ["round"], "rows": [[1, 2]]},
        {"kind": "table", "head": [], "rows": [[]]},
        "not a table",
    ],
)
def test_what_cannot_be_drawn_is_left_out(odd: Any) -> None:
    assert pictures_of({"pictures": [odd]}) == ""


def test_the_page_draws_pictures_and_does_not_print_their_numbers() -> None:
    details = {"rows scored": 90, "pictures": [MAP, BINS]}
    entry = {"vantage": "client:1", "metric": "AUC", "value": 0.8, "chance": 0.5, "low": 0.7, "high": 0.9}
    run = Run("one", {"attacks": {"property": {**entry, "controls": {}, "details": details}}}, (), {}, {}, "")
    (finding,) = read_findings(run)
    assert [name for name, _ in remarks(finding)] == ["Rows scored"]
    section = attacks(run)
    assert section is not None and section.body.count("<figure>") == 2


def test_a_table_and_the_words_of_a_finding_stand_on_the_page_and_records_do_not() -> None:
    rows = {"kind": "table", "title": "by round", "head": ["round", "said"], "rows": [[10, "0, <b>"], [20, "3"]]}
    details = {"in_words": "No leak & no more.", "pairs": [{"round": 10}], "pictures": [rows]}
    entry = {"vantage": "client:1", "metric": "F1", "value": 0.8, "chance": 0.5, "low": 0.7, "high": 0.9}
    run = Run("one", {"attacks": {"category": {**entry, "controls": {}, "details": details}}}, (), {}, {}, "")
    (finding,) = read_findings(run)
    assert remarks(finding) == []
    section = attacks(run)
    assert section is not None
    assert "No leak &amp; no more." in section.body and "0, &lt;b&gt;" in section.body and "<b>0" not in section.body


def test_labels_are_escaped() -> None:
    drawn = pictures_of({"pictures": [{**MAP, "title": "<script>", "label": ["<i>", "b", "b"]}]})
    assert "<script>" not in drawn and "<i> " not in drawn.replace('<i class="swatch', "")


@pytest.mark.parametrize(
    ("vantage", "place"),
    [
        ("client:1", "client 1"),
        ("csp+client:3", "csp and client 3"),
        ("client:4+client:5+client:6+client:7", "clients 4 to 7"),
        ("client:4+client:5+client:6+client:9", "4 clients"),
    ],
)
def test_a_large_coalition_is_not_named_one_by_one(vantage: str, place: str) -> None:
    entry = {"vantage": vantage, "metric": "share", "value": 1.0, "chance": 0.5, "controls": {}, "details": {}}
    (finding,) = read_findings(Run("one", {"attacks": {"acquisition": entry}}, (), {}, {}, ""))
    assert place_of(finding) == place
