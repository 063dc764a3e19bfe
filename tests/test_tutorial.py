"""The tutorial's commands, taken from its own text, in order; and what it says about their results."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_every_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    text = (DOCS / "tutorial.md").read_text()
    blocks = re.findall(r"```\n(covey .*?)\n```", text, flags=re.S)
    assert len(blocks) >= 5
    for command in blocks:
        words = shlex.split(command)
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            env=dict(os.environ),
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    watched = json.loads((tmp_path / "runs/watched/result.json").read_text())
    mingled = json.loads((tmp_path / "runs/mingled/result.json").read_text())
    assert watched["attacks"]["a1"]["verdict"] == "broken"
    assert mingled["attacks"]["a1"]["value"] < 0.55
    assert mingled["encryption"] == "ckks"
    assert (tmp_path / "runs/comparison.html").is_file()


def test_the_python_of_the_tutorial_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "tutorial.md").read_text(), flags=re.S)
    scope: dict[str, object] = {}
    exec(compile(code, "tutorial", "exec"), scope)
    assert scope["result"].accuracy["average_cluster"] > 0.9  # type: ignore[attr-defined]


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points at {target}"
