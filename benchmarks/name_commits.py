"""Names the commit that a stored table's runs were computed by, where the table names another one.

    python benchmarks/name_commits.py [--write]

A machine that is lent gets a copy of the working tree, and what is committed there is not always what runs: then a table says
"with changes", or names a commit whose sources are others. But each run keeps the fingerprint of its own sources
(`results/provenance.py`), and if these were committed, before or after, history has a commit with the same fingerprint. That
one is named, the first of several; the fingerprint itself is never touched. Without `--write` the differences are listed.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from covey import files
from covey.results.provenance import CHANGED, SHOWN, UNKNOWN, fingerprint

ROOT = Path(__file__).parents[1]
PACKAGE = "src/covey/"


def git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout


def sources(commit: str) -> dict[str, bytes]:
    """The package's files in this commit, by their places."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, PACKAGE))) as archive:
        return {
            member.name.removeprefix(PACKAGE): file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


def code_of(commit: str) -> str:
    """The fingerprint that a run by this commit has, by the commit's own rule: CUDA's sources and some rooms came in later."""
    found = sources(commit)
    rule = found.get("results/provenance.py", b"").decode()
    rooms = re.search(r"SHOWN = frozenset\(\((.*?)\)\)", rule, re.DOTALL)
    ends = (".py", ".cu") if '"*.cu"' in rule else (".py",)
    shown = frozenset(re.findall(r'"([^"]+)"', rooms[1])) if rooms else SHOWN
    return fingerprint({place: text for place, text in found.items() if place.endswith(ends)}, shown)


def commits_of(wanted: set[str]) -> dict[str, str]:
    """Fingerprint -> the first commit that has it."""
    found: dict[str, str] = {}
    for commit in git("log", "--reverse", "--format=%H", "--", PACKAGE).decode().split():
        if wanted <= found.keys():
            break
        found.setdefault(code_of(commit), commit)
    return {code: found[code] for code in wanted & found.keys()}


def misnamed(folder: Path) -> dict[Path, dict[str, Any]]:
    """Tables whose commits are not those of their runs' sources."""
    known = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    made = {path: one for path, one in known.items() if isinstance(one, dict) and one.get("runs")}
    said = {commit for one in made.values() for commit in one["runs"]["commit"]}
    codes = {c: "" if c == UNKNOWN or c.endswith(CHANGED) else code_of(c) for c in said}
    return {
        path: one for path, one in made.items() if {codes[c] for c in one["runs"]["commit"]} != {*one["runs"]["code"]}
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the commits that were found into the tables")
    options = parser.parse_args()
    wrong = misnamed(ROOT / "docs/results")
    commits = commits_of({code for one in wrong.values() for code in one["runs"]["code"]})
    for path, one in wrong.items():
        runs = one["runs"]
        lost = [code for code in runs["code"] if code not in commits]
        if lost:
            print(f"{path.name}: no commit has the sources {', '.join(lost)}")
            continue
        named = sorted({commits[code] for code in runs["code"]})
        print(f"{path.name}: {', '.join(runs['commit'])} -> {', '.join(named)}")
        if options.write:
            files.write_json(path, one | {"runs": runs | {"commit": named}})


if __name__ == "__main__":
    main()
