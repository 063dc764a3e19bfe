"""The tutorial's commands, taken from its own text, in order; and what it says about their results."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


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
    (audit,) = json.loads((tmp_path / "runs/audit/audit.json").read_text())["audits"]
    cells = {(cell["row"], cell["column"]): cell["verdict"] for cell in audit["cells"]}
    assert cells["cluster identity", "server"] == cells["cluster identity", "eavesdropper"] == "broken"
    assert cells["other clusters' models", "participating client"] == "given by design"
    assert "no leak seen" in cells.values() and "no attack known" in cells.values()


def test_the_python_of_the_tutorial_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "tutorial.md").read_text(), flags=re.S)
    scope: dict[str, object] = {}
    exec(compile(code, "tutorial", "exec"), scope)
    result: Any = scope["result"]
    assert result.accuracy["average_cluster"] > 0.9
    shown = result._repr_html_()  # what a notebook shows: the whole report in a frame that is cut off from it
    assert '<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html&gt;' in shown and "<script" not in shown


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points at {target}"


def test_the_notebook_is_the_page() -> None:
    """`python docs/make_notebook.py` writes it; a change of the page that is not carried over fails here."""
    spec = importlib.util.spec_from_file_location("make_notebook", DOCS / "make_notebook.py")
    assert spec and spec.loader
    making = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(making)
    text = (DOCS / "tutorial.md").read_text("utf-8")
    assert (DOCS / "tutorial.ipynb").read_text("utf-8") == making.written(making.notebook(text))
    code = ["".join(c["source"]) for c in making.notebook(text)["cells"] if c["cell_type"] == "code"]
    assert len([c for c in code if c.startswith("%covey ")]) == len(re.findall(r"```\ncovey ", text))


def test_the_notebook_runs_and_shows_progress_and_reports(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'covey[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'covey[dev]'")
    import nbformat

    notebook = nbformat.read(DOCS / "tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    complaints = [o.text for cell in cells for o in cell.outputs if o.get("name") == "stderr"]
    assert not any("covey:" in text or "Error" in text or "ipywidgets" in text for text in complaints), complaints
    for cell in cells[1:]:
        shown = "".join(o.data.get("text/html", "") for o in cell.outputs if "data" in o)
        assert "<iframe sandbox" in shown, cell.source  # every command here ends with a page, and so does a result
        assert ("<progress value=" in shown) == ("covey compare" not in cell.source), cell.source
    assert "broken" in "".join(o.get("text", "") for o in cells[2].outputs)
    assert (tmp_path / "runs/mingled/result.json").is_file()
