"""Stored tables name the commit whose sources computed them, so that a reader can check it out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import name_commits  # noqa: E402

RESULTS = ROOT / "docs/results"


def _shallow() -> bool:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() != "false"


@pytest.mark.skipif(_shallow(), reason="this checkout has no history")
def test_every_stored_table_names_the_commit_that_has_its_sources() -> None:
    assert not [path.name for path in name_commits.misnamed(RESULTS)]


@pytest.mark.skipif(_shallow(), reason="this checkout has no history")
def test_a_table_with_the_commit_of_other_sources_is_found(tmp_path: Path) -> None:
    one = json.loads((RESULTS / "mingledpie-table2-mnist.json").read_text(encoding="utf-8"))
    (named,), (code,) = one["runs"]["commit"], one["runs"]["code"]
    found = name_commits.commits_of({code, "no such code"})
    first = found.pop(code)  # before it come other sources; after it, commits of nothing but documents and tests
    assert not found and name_commits.code_of(first) == name_commits.code_of(named) == code
    for name, said in (
        ("right", first),
        ("parent", f"{first}~1"),
        ("changed", f"{first} with changes"),
        ("unnamed", "not recorded"),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(one | {"runs": one["runs"] | {"commit": [said]}}))
    assert [path.stem for path in name_commits.misnamed(tmp_path)] == ["changed", "parent", "unnamed"]
