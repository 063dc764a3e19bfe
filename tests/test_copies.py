"""Tests in copies of a process: nothing is lost, whatever a test does to the process that runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support import copies

CONFTEST = """
from collections import deque
import pytest
from support import copies

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    files = sorted({item.path for item in session.items})
    copies.run(session, 2, [deque(i for i in session.items if i.path == file) for file in files])
    return True
"""

TESTS = {
    "test_a.py": """
import os, time, warnings, pytest

@pytest.fixture(scope="module")
def shared():
    yield os.getpid()
    print("the end of", os.getpid())

def test_first(shared, tmp_path):
    print("said by", shared)
    assert "gw" in str(tmp_path)

def test_ends_its_process(shared):
    os._exit(3)

def test_after_it(shared):
    warnings.warn("an odd thing")

def test_leaves_a_process_behind_and_is_killed():
    if (pid := os.fork()) == 0:
        time.sleep(600)
    open(os.environ["LEFT_BEHIND"], "w").write(str(pid))
    os.kill(os.getpid(), 9)

def test_wrong(capfd):
    os.system("echo child")
    assert capfd.readouterr().out == "other"
""",
    "test_b.py": """
import pytest

@pytest.fixture
def torn():
    yield
    raise ValueError("at the end")

@pytest.mark.skip
def test_skipped(): ...

def test_torn(torn): ...

@pytest.mark.parametrize("n", range(5))
def test_many(n): ...
""",
}


def toy(folder: Path, *words: str, more: Mapping[str, str] | None = None) -> str:
    for name, text in {"conftest.py": CONFTEST, "pytest.ini": "[pytest]", **TESTS, **(more or {})}.items():
        (folder / name).write_text(text)
    left, log = folder / "left", folder / "log"
    known = {"PYTHONPATH": str(Path(copies.__file__).parents[1]), "LEFT_BEHIND": str(left)}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
    with log.open("w") as out:  # no pipe: whom a test leaves behind would hold it open
        subprocess.run(command, cwd=folder, env=os.environ | known, stdout=out, stderr=out)
    if left.exists():
        os.kill(int(left.read_text()), signal.SIGKILL)
    return log.read_text()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere tests run in other workers")
def test_every_test_is_reported_whatever_happens_to_its_process(tmp_path: Path) -> None:
    said = toy(tmp_path)
    assert re.search(r"3 failed, 8 passed, 1 skipped, 1 warning, 1 error", said), said
    assert "ended with exit code 3" in said and "ended with SIGKILL" in said and "an odd thing" in said
    assert "assert 'child\\n' == 'other'" in said and "ValueError: at the end" in said
    assert "said by" not in said  # what a test that passes says is captured


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere tests run in other workers")
def test_the_first_failure_ends_all_where_that_is_asked_for(tmp_path: Path) -> None:
    said = toy(tmp_path, "-x", "-k", "wrong or after or many")
    assert "1 failed" in said and "stopping after 1 failures" in said, said


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere tests run in other workers")
def test_a_copy_that_ends_before_what_is_of_the_session_has_ended_is_no_success(tmp_path: Path) -> None:
    ending = """
import os, pytest

@pytest.fixture(scope="session")
def quits():
    yield
    os._exit(0)

def test_last(quits): ...
"""
    said = toy(tmp_path, "test_c.py", more={"test_c.py": ending})
    assert "copy 0 of the tests ended with exit code 0" in said, said
