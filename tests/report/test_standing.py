"""Pictures that stand alone: where marks are drawn, what the legend says, and that nothing is fetched."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from covey.report.draw.standing import (
    NAMES,
    WIDTH,
    Line,
    Mark,
    Panel,
    Words,
    curves,
    dots,
    length,
    shades,
    shares,
    whiskers,
)
from covey.report.draw.svg import BROADER, Series, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def parts(svg: str, kind: str, name: str) -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(svg).iter(f"{SVG}{name}") if kind in e.get("class", "").split()]


def words(svg: str) -> list[str]:
    return [(e.text or "").replace("\xa0", " ") for e in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_dots_stand_between_the_ends_of_their_scale() -> None:
    marks = [Mark(0, 0.2, (0.1, 0.3), 0.4), Mark(1, 0.8)]
    svg = dots("t", ["first", "second"], [Panel("accuracy", [Line("", marks)])])
    low, high = sorted(float(e.get("cx", "nan")) for e in parts(svg, "c0", "circle")[1:])  # the first is the legend's
    ticks = [float(e.get("x1", "nan")) for e in parts(svg, "grid", "line")]
    scale = (max(ticks) - min(ticks)) / (0.8 - 0.0)  # from 0 % to 80 %
    assert high - low == pytest.approx(0.6 * scale, abs=0.1)
    whisker = parts(svg, "spread", "line")[-1]
    assert float(whisker.get("x2", "0")) - float(whisker.get("x1", "0")) == pytest.approx(0.2 * scale, abs=0.1)
    assert {"first", "second", "accuracy", "covey, 95 % interval", "printed in the paper"} <= set(words(svg))


def test_the_legend_says_only_what_is_drawn() -> None:
    bare = dots("t", ["a"], [Panel("s", [Line("", [Mark(0, 1.0)])], share=False)], Words("measured"))
    assert "measured" in words(bare)
    assert not any("interval" in one or "printed" in one for one in words(bare))
    two = curves("t", [Panel("", [Line("IFCA", [Mark(1, 0.5), Mark(2, 0.6)]), Line("local", [Mark(1, 0.1)])])], "round")
    assert {"IFCA", "local", "round"} <= set(words(two))
    assert "covey" not in words(two)


def test_whiskers_of_few_seeds_do_not_stretch_a_scale_beyond_what_can_be() -> None:
    panel = Panel("accuracy", [Line("", [Mark(0, 0.9, (0.4, 1.4)), Mark(1, 0.1, (-0.3, 0.5))])])
    assert (panel.axis().low, panel.axis().high) == (0.0, 1.0)
    counted = Panel("rounds", [Line("", [Mark(0, 3.0, (-2.0, 8.0))])], share=False)
    assert counted.axis().low == 0.0
    change = Panel("gain", [Line("", [Mark(0, -0.02, (-0.05, 0.01))])])
    assert change.axis().low <= -0.05


def test_curves_share_a_scale_unless_told() -> None:
    panels = [
        Panel("a", [Line("x", [Mark(0, 0.1), Mark(1, 0.2)])]),
        Panel("b", [Line("x", [Mark(0, 0.8), Mark(1, 0.9)])]),
    ]
    together, apart = (curves("t", panels, "r", shared=one) for one in (True, False))
    assert words(together).count("10 %") == 0
    assert words(together).count("80 %") == 2
    assert words(apart).count("20 %") == 1


def test_cells_are_shaded_by_their_share() -> None:
    svg = shades("t", ["row"], ["one", "two", "three"], [[0.0, 1.0, None]])
    assert [e.get("class") for e in parts(svg, "cell", "rect")] == ["cell q0", "cell q9"]
    assert {"0", "100"} <= set(words(svg))


def test_bars_have_their_counts() -> None:
    svg = shares("t", [("paper", [3, 0, 1])], [("holds", "good"), ("undecided", "warn"), ("fails", "bad")])
    bars = [float(e.get("width", "0")) for e in parts(svg, "cell", "rect") if e.get("height") == "26"]
    assert bars[0] + 2 == pytest.approx(3 * (bars[1] + 2))
    assert {"3", "1"} <= set(words(svg))
    assert "0" not in words(svg)


def test_a_picture_stands_alone() -> None:
    svg = dots("Title <here>", ["a & b"], [Panel("s", [Line("", [Mark(0, 1.0)])], share=False)])
    assert ElementTree.fromstring(svg).get("width") == str(WIDTH)
    assert "prefers-color-scheme: dark" in svg
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg"}
    used = set(re.findall(r"var\((--\w+)\)", svg))
    assert all(f"{name}:" in svg for name in used)


def test_a_line_under_others_is_drawn_broader_and_one_that_stands_apart_is_not() -> None:
    ends = [Line(name, [Mark(1, 0.2), Mark(2, at), Mark(3, at)]) for name, at in (("a", 0.9), ("b", 0.9), ("c", 0.4))]
    svg = curves("t", [Panel("", ends)], "round")
    styles = [parts(svg, colour, "path")[0].get("style") for colour in ("c0", "c1", "c2")]
    assert "stroke-width:3.8" in str(styles[0])
    assert styles[1:] == [None, None]
    radii = [{e.get("r") for e in parts(svg, colour, "circle")[1:]} for colour in ("c0", "c1")]  # the first: legend
    assert radii == [{"4.2"}, {"3"}]
    assert words(svg).count(BROADER) == 1
    assert BROADER not in words(curves("t", [Panel("", ends[1:])], "round"))  # none lies on another


def test_the_legend_of_a_report_says_it_too() -> None:
    under, over, apart = (Series(name, [at, at], name) for name, at in (("a", 0.9), ("b", 0.9), ("c", 0.4)))
    shown = [line_chart("t", "d", [1, 2], series, "share").count(BROADER) for series in ([under, over], [over, apart])]
    assert shown == [1, 0]


def test_a_lower_bound_and_runs_without_a_figure_are_told_apart() -> None:
    open_ended = Line("a", [Mark(0, 61.0, least=True, printed=17.0), Mark(1, 17.0, printed=17.0)])
    lost = Line("b", [Mark(1, None, said="3 of 3 runs diverged")])
    svg = dots("t", ["x", "y"], [Panel("rounds", [open_ended, lost], share=False)], Words(least="not reached"))
    assert len(parts(svg, "open", "path")) == 2  # one mark, and the legend's
    assert "not reached" in words(svg) and words(svg).count("3 of 3 runs diverged") == 1
    diamonds = parts(svg, "printed", "path")
    assert len(diamonds) == 3 and ".printed { fill: none;" in svg  # a figure that is the printed one stays visible
    nothing = dots("t", ["x", "y"], [Panel("rounds", [lost], share=False)])
    assert "3 of 3 runs diverged" in words(nothing) and "at least" not in words(nothing)


def test_names_have_room_beside_the_plot() -> None:
    svg = dots("t", ["common LDP", "i"], [Panel("s", [Line("", [Mark(0, 0.5), Mark(1, 0.6)])])])
    (left,) = (float(m) for m in re.findall(r'transform="translate\((\d+) \d+\)"><text[^>]*class="head"', svg))
    assert left - 14 > length("common LDP") > 1.5 * length("llllllllll")
    assert length("fedavg, m = 1200, n = 200") > 166  # its pixels in DejaVu Sans, which is wide


def test_a_name_too_long_for_its_column_is_broken_or_cut_beside_dots_and_cells_alike() -> None:
    sentence, word = "sets redrawn every round, intersection after 10", "preference_profiling_from_sealed_sums"
    for svg in (
        dots("t", [sentence, word], [Panel("s", [Line("", [Mark(0, 0.5), Mark(1, 0.6)])])]),
        shades("t", [sentence, word], ["a", "b"], [[0.5, 0.6], [0.1, 0.2]]),
    ):
        shown = [e for e in parts(svg, "name", "text") if e.get("x") == "14"]
        lines = [e.text or "" for e in shown]
        assert " ".join(lines[:-1]) == sentence and len(lines) == 3
        assert all(length(line) <= NAMES - 16 for line in lines)
        assert lines[-1].endswith("…") and word.startswith(lines[-1][:-1])
        assert [e.findtext(f"{SVG}title") for e in shown] == [None, None, word]
    boxes = [(float(e.get("y", "0")), float(e.get("height", "0"))) for e in parts(svg, "cell", "rect")]
    assert boxes[2][0] >= boxes[0][0] + boxes[0][1]  # a row of two lines is taller


def test_ticks_have_a_minus_and_not_a_hyphen() -> None:
    below = [Line("", [Mark(0, -0.2), Mark(1, 0.1)])]
    for svg in (dots("t", ["a", "b"], [Panel("s", below)]), curves("t", [Panel("s", below)], "round")):
        assert "−20 %" in words(svg) and not any("-" in one for one in words(svg))


def test_a_picture_has_whiskers_where_a_mark_has_an_interval() -> None:
    of = [[Line("", [Mark(0, 0.5, interval)])] for interval in ((0.4, 0.6), None)]
    assert [whiskers(dots("t", ["a"], [Panel("s", lines)])) for lines in of] == [True, False]
