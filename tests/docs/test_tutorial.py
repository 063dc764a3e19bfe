"""The tutorial's commands, taken from its own text, in order; and what it says about their results."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.patience import PATIENCE

DOCS = Path(__file__).parents[2] / "docs"


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


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The notebook after its last cell, and the folder in which it ran: every command of the page, in its order."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'covey[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'covey[dev]'")
    import nbformat

    notebook = nbformat.read(DOCS / "tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    folder = tmp_path_factory.mktemp("tutorial")
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        notebook, timeout=PATIENCE, startup_timeout=PATIENCE, kernel_name="python3", resources=resources
    ).execute()
    return notebook, folder


def test_the_commands_of_the_tutorial_give_what_it_says(executed: tuple[Any, Path]) -> None:
    _, folder = executed
    watched = json.loads((folder / "runs/watched/result.json").read_text())
    mingled = json.loads((folder / "runs/mingled/result.json").read_text())
    assert watched["attacks"]["a1"]["verdict"] == "broken"
    assert mingled["attacks"]["a1"]["value"] < 0.55
    assert mingled["encryption"] == "ckks"
    assert (folder / "runs/comparison.html").is_file()
    (audit,) = json.loads((folder / "runs/audit/audit.json").read_text())["audits"]
    cells = {(cell["row"], cell["column"]): cell["verdict"] for cell in audit["cells"]}
    assert cells["cluster identity", "server"] == cells["cluster identity", "eavesdropper"] == "broken"
    assert cells["other clusters' models", "participating client"] == "given by design"
    assert "no leak seen" in cells.values() and "no attack known" in cells.values()


def test_the_notebook_shows_progress_and_reports(executed: tuple[Any, Path]) -> None:
    notebook, _ = executed
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    complaints = [o.text for cell in cells for o in cell.outputs if o.get("name") == "stderr"]
    assert not any("covey:" in text or "Error" in text or "ipywidgets" in text for text in complaints), complaints
    for cell in cells[1:]:
        shown = "".join(o.data.get("text/html", "") for o in cell.outputs if "data" in o)
        assert "<iframe sandbox" in shown, cell.source  # every command here ends with a page, and so does a result
        assert ("<progress value=" in shown) == ("covey compare" not in cell.source), cell.source
    assert "broken" in "".join(o.get("text", "") for o in cells[2].outputs)
