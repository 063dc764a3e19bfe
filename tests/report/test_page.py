"""The report page: from run folders made up here (synthetic: no run behind them) to HTML that is whole, safe and small."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.attacks.finding import Finding
from covey.errors import CoveyError
from covey.files import number
from covey.report import findings
from covey.report import format as words
from covey.report.draw import grids, marks, svg
from covey.report.draw.markup import Html, tag
from covey.report.findings import read_findings
from covey.report.page import write_comparison, write_report
from covey.report.sections.clusters import latest_memberships
from covey.report.sections.setup import data, flat
from covey.report.sections.summary import headline, main_accuracy
from covey.results.contents import Run, evenly
from covey.results.folder import RunFolder
from support.runs import HOSTILE, synthetic_run


class Elements(HTMLParser):
    """Start tags with their attributes, and whether every element was closed in order."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((name, dict(attributes)))
        if name not in self.VOID:
            self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((name, dict(attributes)))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_of(folder: Path) -> str:
    return write_report(folder).read_text("utf-8")


def visible(page: str) -> str:
    return " ".join(" ".join(Elements(page).text).replace(words.NBSP, " ").split())


def anchors(page: str) -> list[str]:
    return [str(attributes["id"]) for name, attributes in Elements(page).found if name == "section"]


@pytest.fixture(scope="module")
def mingled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_run(tmp_path_factory.mktemp("runs") / "mingled")


# Drawing


@given(st.text())
def test_tag_shows_any_text_as_it_is_and_never_as_markup(value: str) -> None:
    value = value.replace("\r", "").replace("\0", "")
    parsed = Elements(tag("p", value, title=value))
    assert "".join(parsed.text) == value
    assert parsed.found == [("p", {"title": value})]


def test_tag_leaves_html_alone_and_names_attributes() -> None:
    assert (
        tag("g", Html("<b>x</b>"), text_anchor="end", class_="a", x=1.50, y=None)
        == '<g text-anchor="end" class="a" x="1.5"><b>x</b></g>'
    )


def test_linear_axis_by_hand() -> None:
    axis = svg.linear(0.42, 0.975, words.percent)
    assert [label for _, label in axis.ticks] == [f"{v}{words.NBSP}%" for v in (40, 60, 80, 100)]
    assert (axis.low, axis.high) == pytest.approx((0.4, 1.0))
    assert axis.at(0.7) == pytest.approx(0.5)
    assert [label for _, label in svg.linear(1, 100, svg.whole, tight=True).ticks] == ["20", "40", "60", "80", "100"]


def test_log_axis_by_hand() -> None:
    axis = svg.axis_for([3.0, 950.0], log=True)
    assert axis.log and [value for value, _ in axis.ticks] == pytest.approx([1, 10, 100, 1000])
    assert axis.at(10**1.5) == pytest.approx(0.5)
    assert not svg.axis_for([3.0, 50.0], log=True).log  # under a factor of 30, lengths should stay honest
    assert not svg.axis_for([0.0, 50.0], log=True).log


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_axis_holds_its_values_with_a_few_ticks(values: list[float]) -> None:
    axis = svg.axis_for(values)
    assert 2 <= len(axis.ticks) <= 8
    assert all(-1e-6 <= axis.at(value) <= 1 + 1e-6 for value in values)
    places = [value for value, _ in axis.ticks]
    assert places == sorted(places)


@given(st.lists(st.floats(0, 200), max_size=10))
def test_end_labels_stand_apart(places: list[float]) -> None:
    moved = svg.spread(sorted(places), 13, 200)
    assert all(b - a >= 13 - 1e-9 for a, b in pairwise(moved))
    assert all(place <= 200 for place in moved)


def test_cells_by_hand() -> None:
    drawn = grids.cells([[0, 0, 1], [1, -1, 1]], {0: grids.Shade("c0", "a"), 1: grids.Shade("c1", "b")})
    assert 'd="M0 0h2" class="cell c0"' in drawn
    assert 'd="M2 0h1M0 1h1M2 1h1" class="cell c1"' in drawn


@given(
    st.integers(1, 6).flatmap(
        lambda w: st.lists(st.lists(st.integers(-1, 3), min_size=w, max_size=w), min_size=1, max_size=6)
    )
)
def test_cells_can_be_read_back(grid: list[list[int]]) -> None:
    drawn = grids.cells(grid, {value: grids.Shade(f"v{value}", "") for value in range(4)})
    back = [[-1] * len(row) for row in grid]
    for name, attributes in Elements(drawn).found:
        if name == "path":
            for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)", str(attributes["d"])):
                back[int(y)][int(x) : int(x) + int(run)] = [int(str(attributes["class"])[-1])] * int(run)
    assert back == grid


@given(st.integers(1, 5000), st.integers(2, 300))
def test_samples_are_spread_and_keep_both_ends(count: int, limit: int) -> None:
    found = evenly(count, limit)
    assert len(found) == min(count, limit) or len(found) <= limit
    assert found[0] == 0 and found[-1] == count - 1
    assert found == sorted(set(found))


def test_covey_has_a_dot_per_client_and_rings_the_strays() -> None:
    picture, stands_for = marks.covey([[0, 0, 0, 1], [1, 1, -1]], ["a", "b"])
    dots = [attributes["class"] for name, attributes in Elements(picture).found if name == "circle"]
    assert stands_for == 1
    assert sorted(map(str, dots)) == [
        "bird absent",
        "bird c0",
        "bird c0",
        "bird c0",
        "bird c1",
        "bird c1",
        "bird c1 odd",
    ]
    _, many = marks.covey([[0] * 10_000], ["a"])
    assert many == 25


def test_words_by_hand() -> None:
    said = [
        words.size(999),
        words.size(2_544_160),
        words.size(999_999),
        words.duration(0.0316),
        words.duration(139.4),
        words.duration(3 * 3600 + 65),
    ]
    assert [s.replace(words.NBSP, " ") for s in said] == [
        "999 B",
        "2.54 MB",
        "1 MB",
        "32 ms",
        "2 min 19 s",
        "3 h 1 min",
    ]
    assert [words.plain(v) for v in (1e-5, 0.031, 7.92, 12345, 0, 2.5e7)] == [
        "1e-5",
        "0.031",
        "7.92",
        "12,345",
        "0",
        "2.5e7",
    ]
    assert [number(v) for v in (True, "3", None, math.nan, 10**400, 2)] == [None, None, None, None, None, 2.0]


def palettes() -> list[tuple[str, list[str]]]:
    css = (Path(words.__file__).parent / "assets" / "page.css").read_text()
    found = [re.findall(r"--c\d: (#[0-9a-f]{6});", line) for line in css.splitlines() if "--c0:" in line]
    assert len(found) == 3 and found[1] == found[2]  # by media query and by the switch
    return [("#ffffff", found[0]), ("#1c1e21", found[1])]


def linear_rgb(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    lms = np.array(
        [[0.4122215, 0.5363325, 0.0514460], [0.2119035, 0.6806995, 0.1073970], [0.0883025, 0.2817188, 0.6299787]]
    )
    lab = np.array(
        [[0.2104543, 0.7936178, -0.0040720], [1.9779985, -2.4285922, 0.4505937], [0.0259040, 0.7827718, -0.8086758]]
    )
    return lab @ np.cbrt(lms @ np.clip(rgb, 0, 1))


def test_every_pair_of_colours_stays_apart_for_colour_blind_readers() -> None:
    """Severe protanopia and deuteranopia after Machado et al. (2009); 0.1 in OKLab is several just noticeable differences."""
    sights = [
        np.eye(3),
        np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
        np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    ]
    for ground, colours in palettes():
        assert len(colours) == svg.HUES
        for sight in sights:
            seen = [oklab(sight @ linear_rgb(colour)) for colour in [*colours, ground]]
            gaps = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
            assert min(gaps) > 0.1


# Reading


def test_a_torn_and_resumed_log_is_read_in_order(tmp_path: Path) -> None:
    lines = [
        '{"round": 1, "participants": 5}',
        '{"round": 2, "participants": 5}',
        '{"round": 2, "participants": 7}',
        '{"round": 3, "par',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    run = RunFolder(tmp_path).read()
    assert [(entry["round"], entry["participants"]) for entry in run.rounds] == [(1, 5), (2, 7)]
    assert run.problems == ("metrics.jsonl has 1 incomplete line, left out.",)
    assert run.done_rounds == 2


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=r"no result\.json"):
        write_report(tmp_path)
    with pytest.raises(CoveyError, match="not a folder"):
        write_report(tmp_path / "nowhere")


def finding(**changes: object) -> Finding:
    base: dict[str, object] = {"vantage": "server", "metric": "accuracy", "value": 0.5, "chance": 0.2}
    read = Finding.of("a1", base | {"low": 0.4, "high": 0.6} | changes)
    assert read is not None
    return read


def test_a_page_shows_the_verdict_of_the_finding_and_colours_it() -> None:
    shown = {
        "leak": (finding(), "leaks: above chance and controls"),
        "none": (finding(controls={"prior": 0.45}), "no leak seen: its control “prior” reaches as much"),
        "open": (finding(low=0.0, high=1.0), "not measured: it saw too little to tell"),
    }
    for chip, (one, verdict) in shown.items():
        assert (findings.chip_of(one), findings.verdict_of(one)) == (chip, verdict)
    assert findings.chip_of(finding(value=0.99, low=0.9, high=1.0)) == "leak"


# The page


def test_an_attack_without_a_score_is_not_measured_and_not_left_out() -> None:
    from covey.report.sections.privacy import attacks

    section = attacks(Run("r", {"attacks": {"a1": finding().json() | {"value": math.nan}}}, (), {}, {}, ""))
    assert section is not None
    shown = visible(str(section.body))
    assert "not measured: its score is not defined in this run" in shown and "nan" not in shown.lower()


def test_first_screen_says_what_how_well_how_private_and_at_what_cost(mingled: Path) -> None:
    run = RunFolder(mingled).read()
    assert headline(run) == "MingledPie trained 5 models for 120 clients on MNIST"
    found = main_accuracy(run)
    assert found is not None
    said = visible(page_of(mingled))
    assert "MingledPie trained 5 models for 120 clients on MNIST" in said
    assert f"After 100 rounds accuracy is {100 * found[0]:.1f} %" in said
    assert "Leaks, by the strongest of 3 attacks: Intersection (server). Guessing: 20.0 %" in said
    assert "15.3 MB" in said and "2.54 MB up, 12.7 MB down" in said
    assert "2 min 19 s" in said and "60 % of it in “train”" in said
    assert findings.name_of(read_findings(run)[0]) == "Intersection"


def test_every_section_that_has_data_is_there_and_no_other(mingled: Path, tmp_path: Path) -> None:
    assert anchors(page_of(mingled)) == [
        "accuracy",
        "quality",
        "clusters",
        "attacks",
        "algorithm",
        "cost",
        "data",
        "setup",
    ]
    noisy = synthetic_run(tmp_path / "noisy", "fedcaprivacy", clients=20, rounds=12, k=3)
    page = page_of(noisy)
    assert anchors(page) == [
        "accuracy",
        "quality",
        "clusters",
        "attacks",
        "ledger",
        "algorithm",
        "cost",
        "data",
        "setup",
    ]
    said = visible(page)
    assert "ε = 7.92" in said and "Holds per record, not per client" in said
    assert all(title in said for title in ("Memberships", "Eigengap", "Affinities", "Clipping bound 1 in every round"))


def test_memberships_survive_rounds_in_which_a_client_was_absent(tmp_path: Path) -> None:
    lines = [
        {"round": 1, "memberships": [[0.9, 0.1], None, None]},
        {"round": 2, "memberships": [None, [0.2, 0.8], None]},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert latest_memberships(RunFolder(tmp_path).read()) == {0: [0.9, 0.1], 1: [0.2, 0.8]}
    assert "Memberships" in visible(page_of(tmp_path))


def test_a_result_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema": 1, "algorithm": "fedavg", "accuracy": {"global": 0.5}}')
    page = page_of(tmp_path)
    assert anchors(page) == []
    assert "FedAvg trained one model" in visible(page) and "50.0 %" in visible(page)


def test_an_interrupted_run_shows_its_rounds_and_says_so(tmp_path: Path) -> None:
    synthetic_run(tmp_path, clients=20, rounds=40)
    (tmp_path / "result.json").unlink()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines[:17]) + "\n" + lines[17][:50])
    said = visible(page_of(tmp_path))
    assert "stopped after round 17 of 40" in said and "1 incomplete line" in said
    assert "After 17 rounds accuracy is" in said
    assert "not audited" in said


def test_stand_in_data_is_named(tmp_path: Path) -> None:
    synthetic_run(tmp_path, clients=10, rounds=3, stand_in="generated stand-in for Purchase100")
    assert "generated stand-in for Purchase100; no figure here holds for the real data" in visible(page_of(tmp_path))


def test_repeated_seeds_show_their_spread(tmp_path: Path) -> None:
    spread = {"n": 5, "mean": {"accuracy.average_cluster": 0.951}, "std": {"accuracy.average_cluster": 0.004}}
    synthetic_run(tmp_path, clients=10, rounds=3, seeds=spread)
    assert "95.1 ± 0.4 % over 5 seeds." in visible(page_of(tmp_path))


def test_the_page_is_one_small_file_that_fetches_nothing(mingled: Path) -> None:
    page = page_of(mingled)
    assert len(page.encode()) < 300_000
    for name, attributes in Elements(page).found:
        if name == "link":  # the icon, which is part of the page
            assert attributes["rel"] == "icon" and str(attributes["href"]).startswith("data:image/svg+xml,")
            continue
        assert name not in ("img", "iframe", "object", "embed", "base")
        assert not {"src", "srcset", "data", "action", "xlink:href"} & set(attributes)
        assert str(attributes.get("href", "#")).startswith("#")
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not an address to fetch
    assert "url(" not in page and "@import" not in page


def test_ten_thousand_clients_stay_small_and_the_sample_is_owned_up_to(tmp_path: Path) -> None:
    synthetic_run(tmp_path, "ifca", clients=10_000, rounds=8, k=12, labels=100)
    page = page_of(tmp_path)
    assert len(page.encode()) < 400_000
    said = visible(page)
    captions = re.findall(r"<figcaption>([^<]*)</figcaption>", page)
    assert sum("200 of 10,000 clients are drawn" in caption for caption in captions) == 2
    assert "Each dot is 25 clients" in said and "Clusters from 8 on are grey" in said


def test_pure_noise_in_the_assignments_stays_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = [json.dumps({"round": t, "clusters": rng.integers(0, 8, 300).tolist()}) for t in range(1, 501)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(noise))
    page = page_of(tmp_path)
    assert len(page.encode()) < 600_000
    assert "200 of 300 clients" in visible(page) and "200 of 500 rounds" in visible(page)


def test_nothing_from_a_run_becomes_markup(tmp_path: Path) -> None:
    synthetic_run(tmp_path / "a", clients=10, rounds=3, dataset=HOSTILE)
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    result |= dict.fromkeys(("algorithm", "model", "encryption", "defence", "stand_in", "command"), HOSTILE)
    attack = {"vantage": HOSTILE, "metric": HOSTILE, "value": 0.5, "controls": {HOSTILE: 0.1}, "verdict": HOSTILE}
    result["attacks"] = {HOSTILE: attack | {"details": {HOSTILE: [HOSTILE]}}}
    result["privacy"] = [{"mechanism": HOSTILE, "epsilon": 1.0, "caveat": HOSTILE, "composition": HOSTILE}]
    result["versions"], result["seconds"] = {HOSTILE: HOSTILE}, {HOSTILE: 2.0}
    (tmp_path / "a" / "result.json").write_text(json.dumps(result))
    federation = json.loads((tmp_path / "a" / "federation.json").read_text())
    federation |= {"classes": [HOSTILE] * 10, "notes": {HOSTILE: HOSTILE}}
    (tmp_path / "a" / "federation.json").write_text(json.dumps(federation))
    entry = {"round": 4, "seconds": {HOSTILE: 1.0}, "extra": {HOSTILE: 3.0, "t": {HOSTILE: 1.0}}}
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(entry))
    synthetic_run(tmp_path / "b", clients=10, rounds=3)
    compared = write_comparison([tmp_path / "a", tmp_path / "b"], tmp_path / "c.html").read_text()
    for page in (page_of(tmp_path / "a"), compared):
        parsed = Elements(page)
        assert sum(name == "script" for name, _ in parsed.found) == 1
        assert not any(name == "img" for name, _ in parsed.found)
        assert not any(key.startswith("on") for _, attributes in parsed.found for key in attributes)
        assert "<img" not in page and "<script>alert" not in page
        assert "{{7*7}}" in "".join(parsed.text)  # shown as written, not computed


NESTED_KEYS = (
    "up",
    "mean",
    "std",
    "n",
    "value",
    "low",
    "chance",
    "controls",
    "details",
    "name",
    "average_cluster",
    "per_cluster",
)
NESTED_KEYS += ("ari", "accuracy", "train", "total", "epsilon", "condition", "mingled", "noise")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NESTED_KEYS), inner, max_size=3),
    max_leaves=6,
)
RESULT_KEYS = (
    "accuracy",
    "rounds",
    "seconds",
    "bytes",
    "clustering",
    "attacks",
    "privacy",
    "seeds",
    "versions",
    "algorithm",
    "stand_in",
    "command",
)
ROUND_KEYS = ("seconds", "bytes", "accuracy", "clustering", "clusters", "memberships", "extra")
FEDERATION_KEYS = ("dataset", "classes", "histogram", "clusters", "sizes", "notes")


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A run's folder, and what is in its files."""
    folder = synthetic_run(tmp_path_factory.mktemp("odd"), "fedcaprivacy", clients=4, rounds=3, k=2)
    return folder, {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@given(st.data())
def test_a_field_of_any_shape_never_stops_the_report(
    ordinary: tuple[Path, dict[str, str]], data: st.DataObject
) -> None:
    folder, texts = ordinary
    result = json.loads(texts["result.json"])
    result |= data.draw(st.dictionaries(st.sampled_from(RESULT_KEYS), JSON, max_size=3))
    (folder / "result.json").write_text(json.dumps(result))
    federation = json.loads(texts["federation.json"])
    federation |= data.draw(st.dictionaries(st.sampled_from(FEDERATION_KEYS), JSON, max_size=2))
    (folder / "federation.json").write_text(json.dumps(federation))
    rounds = [json.loads(line) for line in texts["metrics.jsonl"].splitlines()]
    rounds[1] |= data.draw(st.dictionaries(st.sampled_from(ROUND_KEYS), JSON, max_size=3))
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rounds)))
    Elements(page_of(folder))


def test_a_failed_write_leaves_the_old_report(mingled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = page_of(mingled)

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(CoveyError, match="could not be written: disk full"):
        write_report(mingled)
    assert (mingled / "report.html").read_text() == before
    assert [path.name for path in mingled.glob(".report*")] == []


def test_the_same_folder_gives_the_same_page(mingled: Path) -> None:
    assert page_of(mingled) == page_of(mingled)


# Side by side


def test_comparison_shows_results_and_only_settings_that_differ(mingled: Path, tmp_path: Path) -> None:
    other = synthetic_run(tmp_path / "other", "ifca", seed=3, level=0.98)
    path = write_comparison([mingled, other], tmp_path)
    assert path == tmp_path / "comparison.html"
    page = path.read_text()
    said = visible(page)
    assert "MingledPie and IFCA on MNIST, side by side" in said
    assert "leads with" in said and "One seed each: another one may turn the order round." in said
    assert anchors(page) == ["results", "curves", "attacks", "cost", "settings"]
    listed = re.findall(r"<th scope=\"row\"><code>([^<]+)</code>", page)
    assert listed == [
        "seed",
        "algorithm.name",
        "algorithm.false_positive_rate",
        "algorithm.threshold",
        "algorithm.threshold_counts",
    ]
    best = re.findall(r'<b class="best">([^<]+)</b>', page)
    assert best and all(value.endswith("%") for value in best)  # equal bytes and times win nothing


def test_comparison_tells_equal_algorithms_and_different_data_apart(tmp_path: Path) -> None:
    small = [
        synthetic_run(tmp_path / name, "ifca", clients=10, rounds=3, dataset=d)
        for name, d in (("x", "mnist"), ("y", "digits"))
    ]
    said = visible(write_comparison(small, tmp_path / "c.html").read_text())
    assert "x and y, side by side" in said
    assert "leads with" not in said and "% in all of them" in said  # where the same number is shown, nobody leads
    assert "the runs learned different data (MNIST, digits)" in said
    with pytest.raises(CoveyError, match="at least two"):
        write_comparison(small[:1], tmp_path / "d.html")


def test_labels_of_a_narrow_axis_differ() -> None:
    assert [label for _, label in svg.linear(11.84, 11.92).ticks] == ["11.84", "11.86", "11.88", "11.90", "11.92"]
    labels = [label for _, label in svg.linear(0.98612, 0.98618, words.percent).ticks]
    assert len(set(labels)) == len(labels) and labels[0] == "98.612\xa0%"
    assert [label for _, label in svg.linear(0, 10).ticks] == ["0", "2", "4", "6", "8", "10"]  # as before


def test_attacks_are_settings_by_name(tmp_path: Path) -> None:
    config = {"attacks": [{"name": "a1", "vantage": "server", "memory": {}}, {"name": "a2"}], "none": []}
    assert dict(flat(config)) == {"attacks.a1": "vantage = server", "attacks.a2": "as usual", "none": []}


def test_an_attack_that_saw_nothing_measured_nothing() -> None:
    entry = {"value": 0.0, "chance": 0.0, "low": 0.0, "high": 1.0, "verdict": "no leak seen"}
    (blind,) = read_findings(Run("r", {"attacks": {"category": entry}}, (), {}, {}, ""))
    assert (findings.chip_of(blind), findings.verdict_of(blind)) == ("open", "not measured: it saw too little to tell")


def test_bars_of_samples_count_every_client_once(tmp_path: Path) -> None:
    for sizes, wanted in (([65, 66, 66, 68], ["65", "66", "67", "68"]), ([1, 100], ["1 to 13", "92 to 100"])):
        folder = synthetic_run(tmp_path / str(len(sizes)), clients=len(sizes), rounds=2, attacks={})
        (folder / "federation.json").write_text(json.dumps({"sizes": sizes}))
        section = data(RunFolder(folder).read())
        assert section is not None
        bars = re.findall(r"<span>([^<]*) samples</span><b>(\d+)</b>", section.body)
        assert (bars[0][0], bars[-1][0]) == (wanted[0], wanted[-1])
        assert sum(int(count) for _, count in bars) == len(sizes) and len(bars) <= 8
