"""The documentation: links that lead somewhere, pages that load quickly, and a site that fetches nothing from anywhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.chromium import SPILLED, Browser, needs_browser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LIMIT = 60_000  # bytes of a page
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub and the site make them: lower case, hyphens for spaces, no punctuation."""
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        for title in HEADING.findall(page.read_text(encoding="utf-8"))
    }


def test_links_of_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            place = (page.parent / path).resolve() if path else page
            known = place.exists() and (not anchor or place.suffix != ".md" or anchor in anchors(place))
            broken += [] if known else [f"{page.relative_to(ROOT)}: {target}"]
    assert broken == []


def test_no_page_is_longer_than_people_read() -> None:
    assert {p.name: p.stat().st_size for p in PAGES if p.stat().st_size > LIMIT} == {}


def test_what_the_site_makes_of_a_page() -> None:
    """Lists and tables need an empty line there, and every page stands in one tab."""
    pytest.importorskip("mkdocs", reason="`pip install 'covey[docs]'`")
    place = importlib.util.spec_from_file_location("site_hooks", ROOT / "site" / "hooks.py")
    assert place is not None and place.loader is not None
    hooks = importlib.util.module_from_spec(place)
    place.loader.exec_module(hooks)
    assert hooks.spaced("Said:\n- one\n- two\n  more\n- three") == "Said:\n\n- one\n- two\n  more\n- three"
    assert hooks.spaced("```\nx\n- y\n```\nend\n| a |") == "```\nx\n- y\n```\nend\n\n| a |"
    assert hooks._outside("algorithms/ifca.md", "../../src/covey/roles/plain.py") == "src/covey/roles/plain.py"
    assert hooks._outside("house.md", "extending.md") is None
    assert hooks.with_page("# A\n\nBy x.", {"audit"}) == "# A\n\n[Every score, as a page](audit.html)\n\nBy x."
    cells = hooks.on_page_content(
        "<p>9 of 13</p><td>9 of 13</td><td>at most 1.5 ×; 20 ms in 5 steps</td>", None, None, None
    )
    assert cells == "<p>9 of 13</p><td>9&nbsp;of&nbsp;13</td><td>at most 1.5&nbsp;×; 20&nbsp;ms in 5 steps</td>"
    table = "<table>\n<thead>\n<tr>\n<th></th>\n<th>claim</th>\n<th>MNIST</th>\n</tr>\n</thead>\n"
    table += "<tr>\n<td>Table 1</td>\n<td>It holds.</td>\n<td>9 ± 1 (3)</td>\n</tr></table>"
    claims = hooks.on_page_content(table, None, None, None)
    assert claims.startswith('<div class="claims"><table>') and '<td class="short">Table 1</td>' in claims
    assert '<td>It holds.</td>\n<td data-of="MNIST">9&nbsp;±&nbsp;1&nbsp;(3)</td>' in claims
    picture = '<p><img alt="A" src="a.svg" /></p>'
    linked = hooks.on_page_content(picture, None, None, None)
    assert linked == '<p class="figure"><a href="a.svg"><img alt="A" src="a.svg" /></a></p>'
    order = [
        "papers/pqfed/README.md",
        "tutorial.md",
        "attacks/README.md",
        "ui.md",
        "papers/pqfed/fig3.md",
        "api/run.md",
    ]
    assert sorted(order, key=hooks.weight, reverse=True) == order
    assert hooks.with_page("# A\n\nBy x.", set()) == "# A\n\nBy x."
    smallest = {p.name: p for p in sorted(hooks.stored(DOCS), key=lambda p: -p.stat().st_size)}
    assert {name: "By `covey audit" in path.with_name("README.md").read_text() for name, path in smallest.items()} == {
        "audit.json": True,
        "frontier.json": True,
    }
    assert all("covey audit" in hooks._page_of(path) for path in smallest.values())

    def flat(one: object) -> list[str]:
        if isinstance(one, str):
            return [one]
        values = one.values() if isinstance(one, dict) else one
        return [page for value in values for page in flat(value)]  # type: ignore[attr-defined]

    listed = [page for page in flat(hooks.navigation(DOCS)) if not page.startswith("api/")]
    assert sorted(listed) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    tables = [
        page for page in listed if page.startswith("papers/mingledpie/table")
    ]  # also where a sentence above links to one
    assert tables == sorted(tables)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="`pip install 'covey[docs]'`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Loaded(HTMLParser):
    """Addresses that a browser loads by itself: no links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        follows = tag == "a" or (tag == "link" and given.get("rel") in ("canonical", "prev", "next"))
        if not follows:
            self.addresses += [
                given[name] or "" for name in ("src", "href", "srcset", "poster", "data") if name in given
            ]


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    foreign = {}
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        foreign[page.name] = [a for a in loaded.addresses if re.match(r"(?:https?:)?//", a)]
    assert {name: found for name, found in foreign.items() if found} == {}
    styles = [
        p for p in site.rglob("*.css") if re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", p.read_text("utf-8"))
    ]
    assert styles == []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("chromium") / "profile")
    yield one
    one.close()


def _requested(browser: Browser) -> set[str]:
    """Kinds of addresses that were asked for: 'file', 'data', 'https' …"""
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    return {url.partition(":")[0] for url in urls}


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    "page",
    [
        "index.html",
        "results.html",
        "papers/fedcaprivacy/index.html",
        "papers/afc_cfl/table2.html",
        "benchmarks.html",
        "api/run.html",
    ],
)
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_screen_and_follow_its_scheme(
    site: Path, browser: Browser, page: str, width: int, scheme: str
) -> None:
    browser.open(site / page, width=width, scheme=scheme)
    assert _requested(browser) <= {"file", "data"}
    assert browser.js("document.documentElement.scrollWidth") <= width
    spilled = browser.js(SPILLED.replace('".scroll"', '".md-typeset__scrollwrap, .md-sidebar, .md-header, pre"'))
    assert spilled == []
    dark = browser.js("document.body.getAttribute('data-md-color-scheme')") == "slate"
    assert dark is (scheme == "dark")


@pytest.mark.slow
def test_no_link_opens_a_folder(site: Path) -> None:
    """Opened from a folder, `.` would be its list of files: the logo leads to a page."""
    for page in ("index.html", "audit.html", "papers/pqfed/fig3.html"):
        logos = re.findall(r'<a href="([^"]*)"[^>]*md-logo', (site / page).read_text(encoding="utf-8"))
        homes = [(site / page).parent.joinpath(link).resolve() for link in logos]
        assert homes == [(site / "index.html").resolve()] * 2


@pytest.mark.slow
def test_the_reference_shows_names_and_defaults_that_people_write(site: Path) -> None:
    text = re.sub("<[^>]+>", "", (site / "api" / "run.html").read_text(encoding="utf-8"))
    assert "covey.Experiment" in text and "covey.experiment.experiment" not in text
    assert "algorithm: Any = IFCA()" in text and "lambda" not in text and "later(" not in text


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [1300, 800, 390])
def test_claims_are_not_cut_at_the_right(site: Path, browser: Browser, width: int) -> None:
    browser.open(site / "results.html", width=width)
    too_wide = """[...document.querySelectorAll(".claims table")]
      .filter(t => t.scrollWidth > t.closest(".md-typeset__scrollwrap").clientWidth).length"""
    assert browser.js('document.querySelectorAll(".claims table").length') > 4
    assert browser.js(too_wide) == 0


@pytest.mark.slow
@needs_browser
def test_a_phone_scrolls_charts_in_their_frame_and_shows_what_a_line_of_a_wide_table_is_about(
    site: Path, browser: Browser
) -> None:
    browser.open(site / "papers" / "pqfed" / "fig3.html", width=390)
    charts = "[...document.querySelectorAll('.figure img')]"
    assert browser.js(f"Math.min(...{charts}.map(i => i.getBoundingClientRect().width))") >= 560  # words can be read
    assert browser.js(f"Math.max(...{charts}.map(i => i.closest('.figure').getBoundingClientRect().right))") < 390
    assert browser.js("document.documentElement.scrollWidth") == 390
    moved = """(frame => { frame.scrollLeft = 300; return frame.scrollLeft > 0
      && frame.querySelector("td").getBoundingClientRect().left === frame.getBoundingClientRect().left })
      (document.querySelector(".md-typeset__scrollwrap"))"""
    assert browser.js(moved) is True


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("MingledPie", "mingledpie.html"),
        ("pretrain", "ifca.html"),
        ("ε", "guarantee.html"),
        ("frontier", "frontier.html"),
        ("tutorial", "tutorial.html"),
    ],
)
def test_search_works_without_a_server(site: Path, browser: Browser, words: str, page: str) -> None:
    browser.open(site / "index.html")
    # The page looks at its field when a key is let go: as often as it takes until it listens.
    browser.js(
        """(async () => {
      const field = document.querySelector("[data-md-component=search-query]");
      field.focus();
      field.value = WORDS;
      while (!document.querySelector(".md-search-result__item")) {
        field.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
        await new Promise(done => setTimeout(done, 50));
      }
    })()""".replace("WORDS", json.dumps(words))
    )
    first = browser.js("document.querySelector('.md-search-result__link').getAttribute('href')")
    assert page in first.partition("?")[0]
    assert _requested(browser) <= {"file", "data"}
