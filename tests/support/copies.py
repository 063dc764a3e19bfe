"""Tests in copies of the process that collected them (`--copies N`): what they share is read, compiled and listed once, not once
per worker, which is a tenth of the suite.

A copy takes one group of tests after the other and says how each went; who hands them out runs none. Processes that have read
torch are copied safely on Linux only: elsewhere `make test` takes pytest-xdist's workers (`-n`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import warnings
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest
from _pytest.main import Session

Group = deque[pytest.Item]
GLANCE = 1.0  # seconds after which a copy that says nothing is looked at


class Copy:
    """A process that runs tests: its end of the line, and what it was given and has not finished."""

    def __init__(self, number: int, session: Session, group: Group, others: Iterable[Copy]) -> None:
        self.number, self.group, self.is_told_to_stop, self.is_through = number, group, False, False
        self.line, other = Pipe()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:  # whatever happens, a copy never goes on with what the process that it was copied from has to do
                for copy in (self, *others):
                    copy.line.close()
                Life(number, session, other).run(group)
                code = 0
            except KeyboardInterrupt:
                code = 130
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        other.close()
        self.status: int | None = None

    def stop(self) -> None:
        """After the test that it runs now."""
        if not self.is_told_to_stop:
            self.is_told_to_stop = True
            with contextlib.suppress(OSError):  # it has ended by itself
                self.line.send([])

    def has_ended(self) -> bool:
        """By the process itself: one that it leaves behind may hold the other end of the line."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def end(self) -> str:
        """How it ended."""
        self.line.close()
        status = os.waitpid(self.pid, 0)[1] if self.status is None else self.status
        code = os.waitstatus_to_exitcode(status)
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class Life:
    """What a copy does. Its reports go over the line: it has no terminal, and folders and captured output of its own."""

    def __init__(self, number: int, session: Session, line: Connection) -> None:
        self.session, self.line, self.config = session, line, session.config
        name = os.environ["PYTEST_XDIST_WORKER"] = f"gw{number}"  # where other plugins look for it
        manager = self.config.pluginmanager
        manager.unregister(name="terminalreporter")
        capture: Any = manager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        folders: Any = self.config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.getbasetemp() / name
        folders._basetemp.mkdir(mode=0o700, exist_ok=True)
        self.is_told_of_the_past = True  # pytest tells who comes later of all warnings until then
        manager.register(self, "covey-copy")
        self.is_told_of_the_past = False

    def run(self, group: Group) -> None:
        try:
            while group:
                self._run_group(list(group))
                self.line.send(("next", None))
                group = deque(self.session.items[place] for place in self.line.recv())
        finally:
            self.session._setupstate.teardown_exact(None)
        self.line.send(("bye", None))

    def _run_group(self, group: list[pytest.Item]) -> None:
        for item, following in zip(group, [*group[1:], self.session]):  # between groups what is of the session stays
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.line.poll():  # told to stop
                break

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.line.send(("start", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.line.send(("finish", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.config.hook
        self.line.send(("report", hook.pytest_report_to_serializable(config=self.config, report=report)))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if self.is_told_of_the_past:
            return
        message, category = warning_message.message, warning_message.category
        try:
            pickle.loads(pickle.dumps((message, category)))
        except Exception:  # it needs not be one that can travel
            message, category = UserWarning(f"{category.__name__}: {message}"), UserWarning
        facts = (message, category, warning_message.filename, warning_message.lineno)
        self.line.send(("warning", {"facts": facts, "when": when, "nodeid": nodeid, "location": location}))


class Copies:
    """The copies that run now. One that dies costs the test that it ran; another takes over the rest of its group."""

    def __init__(self, session: Session, groups: Iterable[Group]) -> None:
        self.session, self.hook, self.groups = session, session.config.hook, deque(groups)
        self.places = {item: place for place, item in enumerate(session.items)}
        self.running: list[Copy] = []

    def run(self, number: int) -> None:
        try:
            for n in range(min(number, len(self.groups))):
                self._begin(n, self.groups.popleft())
            while self.running:
                wait([copy.line for copy in self.running], timeout=GLANCE)
                for copy in list(self.running):
                    ended = copy.has_ended()  # before its last word is looked for
                    if copy.line.poll():
                        self._hear(copy)
                    elif ended:
                        self._bury(copy)
        except BaseException:
            for copy in self.running:
                if not copy.has_ended():
                    os.kill(copy.pid, signal.SIGINT)
                copy.end()
            raise

    def _begin(self, number: int, group: Group) -> None:
        self.running.append(Copy(number, self.session, group, self.running))

    def _hear(self, copy: Copy) -> None:
        try:
            kind, word = copy.line.recv()
        except (EOFError, OSError):  # how it ends is read from the process
            kind = "end"
        if kind == "end":
            self._bury(copy)
        elif kind == "next":
            copy.group = deque()
            if not self.groups or self._is_over():
                copy.stop()
            else:
                copy.group = self.groups.popleft()
                with contextlib.suppress(OSError):
                    copy.line.send([self.places[item] for item in copy.group])
        elif kind == "start":
            self.hook.pytest_runtest_logstart(**word)
        elif kind == "report":
            config = self.session.config
            report = self.hook.pytest_report_from_serializable(config=config, data=word)
            self.hook.pytest_runtest_logreport(report=report)
            if self._is_over():
                for each in self.running:
                    each.stop()
        elif kind == "bye":
            copy.is_through = True
        elif kind == "finish":
            copy.group.popleft()
            self.hook.pytest_runtest_logfinish(**word)
        else:
            message, category, filename, lineno = word.pop("facts")
            warning = warnings.WarningMessage(message, category, filename, lineno)
            self.hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": warning, **word})

    def _is_over(self) -> bool:
        return bool(self.session.shouldfail or self.session.shouldstop)

    def _bury(self, copy: Copy) -> None:
        self.running.remove(copy)
        how = copy.end()
        if copy.group:
            item = copy.group.popleft()
            words = f"the process that ran this test ended with {how}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
            self.hook.pytest_runtest_logreport(report=report)
        elif how != "exit code 0" or not copy.is_through:  # when what is of the whole session was ended
            raise RuntimeError(f"copy {copy.number} of the tests ended with {how}")
        if copy.group and not self._is_over():
            self._begin(copy.number, copy.group)


def run(session: Session, number: int, groups: Iterable[Group]) -> None:
    """All groups of tests in so many copies."""
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")
    capture.read_global_capture()  # what was said until now is no copy's
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    Copies(session, groups).run(number)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
