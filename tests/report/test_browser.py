"""The report as a reader meets it: headless Chromium, driven over a pipe, on a phone, a laptop, in the dark and on paper."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from covey.audit.frontier import write_frontier
from covey.audit.page import write_audit
from covey.leaks import CLIENT, SERVER
from covey.papers.cells import Cell
from covey.papers.harness import Reproduction
from covey.papers.present import page as page_of_table
from covey.papers.verdict import VERDICTS, Claim
from covey.report.page import write_comparison, write_report
from support.audits import finding, matrix, small
from support.chromium import SPILLED, Browser, centre, needs_browser
from support.frontiers import FIGURES
from support.patience import PATIENCE
from support.runs import HOSTILE, synthetic_run

pytestmark = needs_browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of every kind, a hostile one included: long names are where layouts break."""
    room = tmp_path_factory.mktemp("pages")
    mingled = synthetic_run(room / "mingled", rounds=40)
    noisy = synthetic_run(room / "noisy", "fedcaprivacy", clients=30, rounds=20, k=3, dataset="digits")
    many = synthetic_run(room / "many", "ifca", clients=400, rounds=20, k=12, labels=100, attacks={})
    hostile = synthetic_run(
        room / "hostile", clients=10, rounds=4, dataset=HOSTILE * 3, stand_in=HOSTILE, model="m" * 200
    )
    bare = room / "bare"
    bare.mkdir()
    (bare / "result.json").write_text('{"schema": 1, "accuracy": {"global": 0.5}}')
    runs = {run.name: write_report(run) for run in (mingled, noisy, many, hostile, bare)}
    several = {"comparison": write_comparison([mingled, noisy, hostile], room / "comparison.html")}
    return (
        runs
        | several
        | {"audit": audit(room, 1), "matrix": audit(room, 3), "survey": audit(room, 12), "table": reproduction(room)}
        | {"frontier": write_frontier(FIGURES, room)[1]}
    )


def audit(room: Path, count: int) -> Path:
    """A made-up audit with every kind of cell, or several of them side by side."""
    found = {
        ("a1", SERVER): finding(1.0, 0.9, 1.0),
        ("a1_bayes", SERVER): finding(0.7, 0.6, 0.8, used=HOSTILE),
        ("category", CLIENT): finding(0.4, 0.3, 0.6, controls={HOSTILE: 0.45}),
    }
    made = replace(matrix(small(), found, a2=HOSTILE), algorithm="ifca", dataset=HOSTILE, notes=(HOSTILE,))
    refused = replace(made, cells=(), problem=HOSTILE)
    return write_audit(([made, refused, made] * 4)[:count], room / f"audit-{count}.html", "covey audit " + "x" * 200)


def reproduction(room: Path) -> Path:
    cells = [
        Cell(row, column, 0.98, 0.01, 3, 0.97) for row in ("ours", HOSTILE) for column in ("a long name", "b", "c", "d")
    ]
    claims = [Claim(HOSTILE, verdict, "because " * 30) for verdict in VERDICTS]
    made = Reproduction("paper", "table1", HOSTILE, "mnist", {"rate": 0.1, HOSTILE: HOSTILE}, cells, claims, [HOSTILE])
    (room / "table.html").write_text(page_of_table(made))
    return room / "table.html"


NAMES = ("mingled", "noisy", "many", "hostile", "bare", "comparison", "audit", "matrix", "survey", "table")


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "light"), (1440, "dark")]
)  # boxes depend on widths, colours on schemes
@pytest.mark.parametrize("name", NAMES)
def test_no_complaint_no_request_and_nothing_outside_the_page(
    browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    browser.open(pages[name], width, scheme=scheme)
    assert browser.complaints() == []
    assert browser.js("document.documentElement.scrollWidth") == width
    assert browser.js(SPILLED) == []
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(250, 249, 246)", "dark": "rgb(20, 21, 23)"}[scheme]


def test_the_complaint_detector_can_find_one(browser: Browser, tmp_path: Path) -> None:
    """The tests above would pass on silence alone: a page that misbehaves must be heard, and our policy must block its script."""
    (tmp_path / "bad.html").write_text("<script>console.error('x'); nothing.there()</script><img src=missing.png>")
    browser.open(tmp_path / "bad.html")
    assert len(browser.complaints()) >= 3
    page = write_report(synthetic_run(tmp_path / "run", clients=6, rounds=2)).read_text()
    (tmp_path / "injected.html").write_text(page.replace("<main>", "<main><script>document.title = 'taken'</script>"))
    browser.open(tmp_path / "injected.html")
    assert browser.js("document.title") != "taken"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_hovering_a_curve_reads_every_series_at_that_round(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"])
    browser.hover(*centre(browser, "#accuracy svg.lines .plot"))
    said = browser.js("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText").replace(
        "\xa0", " "
    )
    assert said.startswith(("round 20", "round 21"))
    row = json.loads((pages["mingled"].parent / "metrics.jsonl").read_text().splitlines()[int(said[6:8]) - 1])
    assert f"{100 * row['accuracy']['average_cluster']:.1f} %" in said
    assert f"{100 * row['accuracy']['global']:.1f} %" in said


def test_hovering_a_cell_names_client_round_and_cluster(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"])
    browser.hover(*centre(browser, "#clusters svg.cells .plot"))
    said = browser.js("document.getElementById('tip').innerText")
    where, chosen = said.split("\n")[:2]
    client, round_ = (int(part.split()[1]) for part in where.split(", "))
    rows = [json.loads(line) for line in (pages["mingled"].parent / "metrics.jsonl").read_text().splitlines()]
    assert chosen == f"cluster {rows[round_ - 1]['clusters'][client]}"


def test_a_legend_key_hides_its_series_and_brings_it_back(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"])
    shown = "[...document.querySelectorAll('#accuracy .ended g[data-s=\"1\"]')].filter(e => e.getClientRects().length).length"
    key = "document.querySelector('#accuracy button.key[data-s=\"1\"]')"
    assert browser.js(shown) == 1
    browser.js(f"{key}.click()")
    assert browser.js(shown) == 0 and browser.js(f"{key}.getAttribute('aria-pressed')") == "false"
    browser.js(f"{key}.click()")
    assert browser.js(shown) == 1


def test_every_chart_is_saved_as_svg_and_png(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(pages["mingled"], scheme="dark")
    charts = "[...document.querySelectorAll('figure, .findings > li')].filter(e => e.querySelector('svg'))"
    assert browser.js(f"{charts}.every(e => e.querySelector('.save button'))")
    picked = f"{charts}.find(e => e.closest('#accuracy') && e.querySelector('.legend'))"
    for kind in (0, 1):
        browser.js(f"{picked}.querySelectorAll('.save button')[{kind}].click()")
    names = ("accuracy-by-round.svg", "accuracy-by-round.png")
    end = time.monotonic() + PATIENCE
    while not all((tmp_path / name).is_file() for name in names) and time.monotonic() < end:
        time.sleep(0.1)
    drawn = ElementTree.parse(tmp_path / names[0]).getroot()
    words = " ".join(t.text or "" for t in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert "Mean of clusters" in words and "Accuracy by round" in words and "Saved" not in words
    lines = [p for p in drawn.iter("{http://www.w3.org/2000/svg}path") if p.get("stroke", "none") != "none"]
    assert len({p.get("stroke") for p in lines}) == 3  # each series in its own colour, without a style sheet
    assert not any("var(" in value or key in ("class", "style") for e in drawn.iter() for key, value in e.items())
    with Image.open(tmp_path / names[1]) as image:
        assert (
            image.width == 2 * int(float(drawn.get("width", 0)))
            and len(image.convert("RGB").getcolors(1 << 24) or []) > 20
        )


def test_a_cell_of_the_comparison_leads_to_its_score_though_that_is_folded_away(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["matrix"])
    cell = "document.querySelectorAll('.worst tr')[3].querySelector('td.leak a')"
    target = f"document.getElementById(decodeURIComponent({cell}.hash.slice(1)))"
    assert browser.js(f"{target}.checkVisibility()") is False
    browser.js(f"{cell}.click()")
    browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    assert browser.js(f"{target}.checkVisibility()") is True
    browser.js("location.hash = 'combination-0'")
    browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    assert browser.js("document.getElementById('combination-0').open")
    assert not browser.complaints()


def test_the_switch_turns_dark_to_light_and_back(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"], scheme="dark")
    grounds = []
    for _ in range(2):
        browser.js("document.getElementById('theme').click()")
        grounds.append(browser.js("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(250, 249, 246)", "rgb(20, 21, 23)"]


def test_the_first_screen_holds_the_four_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"], 1440, 900)
    assert browser.js("document.querySelector('.tiles').getBoundingClientRect().bottom") < 900
    assert browser.js("document.querySelectorAll('.tile .value').length") == 4


def test_paper_is_white_and_whole(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.open(pages["mingled"], scheme="dark")
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.pdf(tmp_path / "report.pdf")
    printed = (tmp_path / "report.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and 3 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 20
