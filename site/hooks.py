"""What the documentation site has beyond `docs/`: the API reference, pages of stored audits, files that pages link to.

The pages are written for GitHub, and stay readable there. What differs on the site is bridged here and nowhere else: a link out of
`docs/` becomes a page of the site with that file, and a list or table needs an empty line before it. MkDocs calls the functions
whose names begin with `on_`.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import covey
from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.audit.frontier.frontier import Frontier
from covey.audit.frontier.output import frontier_page
from covey.audit.page import page_of
from covey.compression import COMPRESSIONS
from covey.data.partitions import PARTITIONS
from covey.defences import DEFENCES
from covey.names import OURS, Registry
from covey.report.page import render

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "covey"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)]*)?\))")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
FENCE = re.compile(r"\s*```")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash"}
VERDICT = re.compile(r"<strong>([✓✗?–]) (holds|does not hold|undecided|not measured)</strong>")
CLAIMS = re.compile(r"<table>\s*<thead>\s*<tr>\s*<th></th>\s*<th>claim</th>.*?</table>", re.DOTALL)
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
HEAD = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
WORDY = re.compile(r"<th(?=[ >])(?=[^>]*>[^<]{17})")  # a column's head of several words
ROW = re.compile(r"<tr>\s*<td.*?</tr>", re.DOTALL)
FIRST = re.compile(r"(<tr>\s*<td)([^>]*>)(.*?)(?=</td>)", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
FIGURE = re.compile(r'<p>(<img [^>]*src="([^"]+)"[^>]*>)</p>')
UNIT = re.compile(
    r"(?<=\d) (?=(?:[×%]|[µm]?s|[kMG]?B|points|rounds|runs|AUC|of \d+)(?![\w.]))|(?<=\d of) (?=\d)| (?=± \d)|(?<= ±) (?=\d)"
    r"|(?<=\d) (?=\(\d+\)</td>)"
)
KINDS = {"✓": "good", "✗": "bad", "?": "open", "–": "none"}
WEIGHTS = (
    (r"papers/\w+/README\.md|algorithms/(?:afc|fedcaprivacy|mingledpie|pqfed)\.md", 3.0),
    (r"(?:audit|coverage|frontier|results|tutorial)\.md", 2.0),
    (r"algorithms/|attacks/|defences/", 1.5),
    (r"papers/", 0.5),
    (r"(?:api|results|repository)/", 0.2),
)
SHORT, LINE = 14, 28  # letters in a table's first cell that stay on one line: everywhere, on more than a phone
LARGE = 60_000  # bytes; what is longer is given as a file, not as a page

# page of the reference -> its title, what it is for, and the modules or objects whose docstrings it shows
REFERENCE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "run": (
        "Run and read",
        "An experiment, its run, its result and its folder.",
        (
            "covey.experiment.experiment.Experiment",
            "covey.experiment.participation",
            "covey.rounds.loop.run",
            "covey.rounds.result.Result",
            "covey.results.folder.RunFolder",
            "covey.errors",
        ),
    ),
    "data": (
        "Data",
        "Datasets, federations, partitions.",
        ("covey.data.dataset", "covey.data.federation", "covey.data.own", "covey.data.partitions"),
    ),
    "algorithm": (
        "Contract of an algorithm",
        "What a class declares and defines to be one; what its clients may ask of their machine.",
        ("covey.algorithms.contract", "covey.learn.work", "covey.messages", "covey.roles"),
    ),
    "attack": (
        "Contract of an attack",
        "What it sees, what it says about itself, and its finding.",
        ("covey.attacks.contract", "covey.attacks.declaration", "covey.attacks.finding", "covey.leaks"),
    ),
    "defence": (
        "Defences, compression, metrics",
        "The smaller contracts.",
        ("covey.defences.contract", "covey.strength", "covey.compression", "covey.metrics.metric", "covey.measures"),
    ),
    "models": ("Models", "What a network must be.", ("covey.models.spec", "covey.models.own", "covey.models.choice")),
    "ledger": (
        "Privacy ledger",
        "Events that were spent, accountants that price them, and audits from below.",
        (
            "covey.ledger.events",
            "covey.ledger.pricing",
            "covey.ledger.entries",
            "covey.ledger.accountants",
            "covey.ledger.calibration",
            "covey.ledger.statements",
            "covey.ledger.lower_bounds",
        ),
    ),
    "audit": ("Audit", "Every attack that applies, in one matrix.", ("covey.audit.matrix", "covey.audit.runs")),
    "papers": (
        "Papers",
        "How a paper's table is made, and judged.",
        ("covey.papers.harness", "covey.statistics"),
    ),
    "loggers": ("Loggers", "Records of rounds for other tools.", ("covey.loggers",)),
}

REGISTRIES: dict[str, tuple[str, Registry]] = {
    "algorithms": ("Algorithms", ALGORITHMS),
    "attacks": ("Attacks", ATTACKS),
    "defences": ("Defences", DEFENCES),
    "compressions": ("Compressions", COMPRESSIONS),
    "partitions": ("Partitions", PARTITIONS),
}

# The tabs of the site: single pages, or every page of a folder. A page of docs/ that stands in none of them comes under the last.
TABS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Start",
        (
            "README.md",
            "tutorial.md",
            "your_own_data.md",
            "real_silos.md",
            "settings.md",
            "own_model.md",
            "csv_to_deployment.md",
            "metrics.md",
            "results_out.md",
            "ui.md",
            "loggers.md",
            "compression.md",
            "simulation_at_scale.md",
            "asynchronous.md",
            "extending.md",
        ),
    ),
    ("Claims", ("field.md", "results.md", "coverage.md", "papers/", "benchmarks.md")),
    ("Algorithms", ("algorithms/",)),
    ("Attacks", ("threat_models.md", "audit.md", "frontier.md", "audit_ledger.md", "attacks/", "results/")),
    ("Defences", ("defences/", "guarantee.md", "guarantee_sealed.md")),
    ("Deployment", ("deployment/",)),
    ("API", ("api/index.md", *(f"api/{name}.md" for name in [*REFERENCE, *REGISTRIES]))),
    ("House", ("house.md", "decisions/")),
)


def on_config(config: Any) -> Any:
    config.nav = navigation(Path(config.docs_dir))
    return config


def navigation(docs: Path) -> list[dict[str, Any]]:
    """The tabs with their pages, each page once; folders inside a folder are sections with the title of their first page."""
    pages = [p.relative_to(docs).as_posix() for p in docs.rglob("*.md")]
    pages.sort(key=lambda p: (posixpath.basename(p) != "README.md", p))
    tabs: list[tuple[str, list[Any]]] = []
    known = set()
    for title, wanted in TABS:
        listed: list[Any] = []
        for one in wanted:
            below = [p for p in pages if p.startswith(one)] if one.endswith("/") else [one]
            known.update(below)
            folders = {posixpath.dirname(p) for p in below}
            inner = sorted(folders if len(below) == 1 and one.endswith("/") else folders - {posixpath.dirname(one)})
            listed += [_named(docs, p) for p in below if posixpath.dirname(p) not in inner]
            listed += [_section(docs, folder, [p for p in below if p.startswith(f"{folder}/")]) for folder in inner]
        tabs.append((title, listed))
    tabs[-1][1].extend(p for p in pages if p not in known)
    return [{title: listed} for title, listed in tabs]


def _section(docs: Path, folder: str, pages: list[str]) -> dict[str, list[Any]]:
    """A folder under the title of its first page, its others in the order of their headings there, or else of links to them."""
    first = (docs / folder / "README.md").read_text(encoding="utf-8")
    title = (_linked(docs, folder) if folder.startswith("results/") else "") or _title(first)
    headings = "\n".join(line for line in first.split("\n") if line.startswith("### "))
    ordered = sorted(pages[1:], key=lambda p: [text.find(f"]({posixpath.basename(p)})") for text in (headings, first)])
    short = [{_title((docs / p).read_text(encoding="utf-8")).removeprefix(f"{title}, "): p} for p in ordered]
    return {title: [pages[0], *short]}


def _linked(docs: Path, folder: str) -> str:
    """A stored result under the words that the page on audits has for it: its own title is its settings."""
    audits = (docs / "audit.md").read_text(encoding="utf-8")
    known = re.search(rf"\[([^\]]+)\]\({re.escape(folder)}/README\.md\)", audits)
    kind = posixpath.basename(folder).partition("-")[0].capitalize()
    return f"{kind}: {known[1]}" if known else ""


def _named(docs: Path, page: str) -> Any:
    """'Membership inference: `lira`, `rmia` …' is 'Membership inference' in the list; other pages have their own title there."""
    short, mark, _ = (
        _title((docs / page).read_text(encoding="utf-8")).partition(": `") if (docs / page).exists() else ("", "", "")
    )
    return {short: page} if mark and "`" not in short else page


def _title(markdown: str) -> str:
    return markdown.partition("\n")[0].removeprefix("# ")


def on_files(files: Files, config: Any) -> Files:
    """Adds the reference, and every file of the repository that a page links to."""
    for name, (title, words, objects) in REFERENCE.items():
        content = f"# {title}\n\n{words}\n\n" + "\n\n".join(map(_documented, objects)) + "\n"
        files.append(File.generated(config, f"api/{name}.md", content=content))
    for name, (title, registry) in REGISTRIES.items():
        files.append(File.generated(config, f"api/{name}.md", content=_registered(title, registry)))
    files.append(File.generated(config, "api/index.md", content=_reference_index()))
    for numbers in stored(Path(config.docs_dir)):
        page = numbers.with_suffix(".html").relative_to(config.docs_dir).as_posix()
        files.append(File.generated(config, page, content=_page_of(numbers)))
    wanted = set()
    for page in files.documentation_pages():
        if page.abs_src_path:  # those of docs/, not what was just made
            text = Path(page.abs_src_path).read_text(encoding="utf-8")
            wanted |= {path for _, target, _ in LINK.findall(text) if (path := _outside(page.src_uri, target))}
    for path in sorted(wanted):
        files.append(_repository_file(config, path))
    return files


def _documented(path: str) -> str:
    """Under the name by which it is imported: `covey.Experiment`, wherever that is defined."""
    short = {f"{getattr(covey, name).__module__}.{name}": name for name in covey.__all__ if not name.startswith("_")}
    return f"::: {path}" + (f"\n    options:\n      heading: covey.{short[path]}" if path in short else "")


def stored(docs: Path) -> list[Path]:
    """Numbers of audits and frontiers, of which pages with every score are made here: they are not kept in the repository."""
    return sorted(path for name in ("audit", "frontier") for path in (docs / "results").glob(f"*/{name}.json"))


def _page_of(numbers: Path) -> str:
    content = json.loads(numbers.read_text(encoding="utf-8"))
    if numbers.stem == "audit":
        return page_of(content)
    return render(frontier_page(Frontier.of(content["frontier"]), content["command"]))


def with_page(markdown: str, names: set[str]) -> str:
    """A stored result with a link to the page that was made of its numbers."""
    head, _, rest = markdown.partition("\n\n")
    link = next((f"[Every score, as a page]({name}.html)\n\n" for name in ("audit", "frontier") if name in names), "")
    return f"{head}\n\n{link}{rest}" if link else markdown


def weight(page: str) -> float:
    """In the search: pages that explain come before a paper's single tables, the reference, stored results and sources."""
    return next((low for start, low in WEIGHTS if re.match(start, page)), 1.0)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    page.meta.setdefault("search", {"boost": weight(page.file.src_uri)})
    if page.file.src_uri.startswith("results/") and page.file.src_uri.endswith("README.md"):
        beside = Path(config.docs_dir, page.file.src_uri).parent
        markdown = with_page(markdown, {path.stem for path in stored(Path(config.docs_dir)) if path.parent == beside})

    def on_the_site(found: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, found[2])
        if path is None:
            return found[0]
        return f"{found[1]}{posixpath.relpath(_site_uri(path), posixpath.dirname(page.file.src_uri) or '.')}{found[3]}"

    return spaced(LINK.sub(on_the_site, markdown))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Verdicts in colour, beside their mark and word; claims that fit a phone; units with their figures; pictures as links."""
    html = CLAIMS.sub(_claims, html)
    html = CELL.sub(lambda cell: UNIT.sub("&nbsp;", cell[0]), html)
    html = WORDY.sub('<th class="long"', FIRST.sub(_first, html))
    html = FIGURE.sub(r'<p class="figure"><a href="\2">\1</a></p>', html)
    return VERDICT.sub(
        lambda found: f'<strong class="verdict {KINDS[found[1]]}">{found[1]}&nbsp;{found[2]}</strong>', html
    )


def _claims(table: re.Match[str]) -> str:
    """Each cell says of which dataset it is: a phone shows the cells of a claim below it, without the columns' heads."""
    heads = HEAD.findall(table[0])

    def row(found: re.Match[str]) -> str:
        names = iter(heads)
        return CELL.sub(lambda cell: _of(next(names, ""), cell[0]), found[0])

    return f'<div class="claims">{ROW.sub(row, table[0])}</div>'


def _of(head: str, cell: str) -> str:
    return cell.replace("<td", f'<td data-of="{head}"', 1) if head not in ("", "claim") else cell


def _first(found: re.Match[str]) -> str:
    """What a line is about, and whether that is short enough to stay on one."""
    letters = len(TAG.sub("", found[3]))
    kind = ' class="short"' if letters <= SHORT else ' class="line"' if letters <= LINE else ""
    return f"{found[1]}{kind}{found[2]}{found[3]}"


def spaced(markdown: str) -> str:
    """Empty lines before lists and tables that follow a line of text: GitHub needs none, Python's Markdown does."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= bool(FENCE.match(line))
        before = lines[-1] if lines else ""
        begins = (ITEM.match(line) and not ITEM.match(before) and not before.startswith(" ")) or (
            line.startswith("|") and not before.startswith("|")
        )
        if not fenced and begins and before.strip():
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _outside(page: str, target: str) -> str | None:
    """The path in the repository of a link that leaves docs/; None of all others."""
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return path if not path.startswith("docs/") and (ROOT / path).exists() else None


def _site_uri(path: str) -> str:
    """Where a file or folder of the repository stands on the site, before Markdown becomes HTML."""
    if path == "README.md":
        return "README.md"  # the site's first page
    return f"repository/{path}.md" if _is_page(ROOT / path) else f"repository/{path}"


def _is_page(path: Path) -> bool:
    if path.is_dir():
        return True
    return path.suffix in (".py", ".toml", ".sh") and path.stat().st_size < LARGE


def _repository_file(config: Any, path: str) -> File:
    source = ROOT / path
    if not _is_page(source):
        return File.generated(config, _site_uri(path), content=source.read_bytes())
    if source.is_dir():
        parts = [f"# {path}\n"]
        for one in sorted(p for p in source.rglob("*") if p.suffix in LANGUAGES):
            parts.append(f"## {one.relative_to(source)}\n\n{_fenced(one)}")
        return File.generated(config, _site_uri(path), content="\n".join(parts))
    return File.generated(config, _site_uri(path), content=f"# {path}\n\n{_fenced(source)}")


def _fenced(path: Path) -> str:
    return f"````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}\n````\n"


def _registered(title: str, registry: Registry) -> str:
    """A page with what covey brings of a kind: the docstring of each module, and its classes that have a name."""
    classes: dict[str, list[str]] = {}
    for entry in registry.entries:
        module, _, name = entry.path.partition(":")
        if entry.origin == OURS:
            classes.setdefault(module, []).extend([name] if name else [])
    parts = [f"# {title}\n"]
    for module in sorted(classes):
        parts.append(f"::: {module}\n    options:\n      members: [{', '.join(classes[module])}]\n")
    return "\n".join(parts)


def _reference_index() -> str:
    lines = [f"- [{title}]({name}.md): {words}" for name, (title, words, _) in REFERENCE.items()]
    lines += [f"- [{title}]({name}.md): what covey brings, with its fields" for name, (title, _) in REGISTRIES.items()]
    return (
        "# API reference\n\nFrom the docstrings. What is not listed is not meant to be built upon; "
        "[the house](../house.md) says where it lives.\n\n" + "\n".join(lines) + "\n"
    )
