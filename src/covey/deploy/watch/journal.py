"""What a party says while it runs: sentences for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from covey.errors import CoveyError, nearest, printable

TEXT, JSON = "text", "json"
FORMS = (TEXT, JSON)


class Journal:
    """Called with a sentence. `event` is for machines only: people get it in a sentence, where it matters.

    On stderr, where sentences stand above a live bar. Words of others may stand in them, so what a terminal would obey is
    written out.
    """

    def __init__(self, party: str = "", form: str = TEXT, quiet: bool = False, stream: TextIO | None = None) -> None:
        if form not in FORMS:
            raise CoveyError(f"there is no --log {form!r}{nearest(form, FORMS)}")
        self.party, self.form, self.quiet, self._stream = party, form, quiet, stream
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        if self.form == JSON:
            self._write({"event": "said", "text": printable(text)})
        elif not self.quiet:
            self._print(printable(text))

    def event(self, kind: str, **facts: Any) -> None:
        if self.form == JSON:
            exact = {name: round(fact, 3) if isinstance(fact, float) else fact for name, fact in facts.items()}
            self._write({"event": kind, **exact})

    def _write(self, facts: dict[str, Any]) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        if not self.quiet:
            self._print(json.dumps({"time": moment, "party": self.party, **facts}, ensure_ascii=True, default=str))

    def _print(self, line: str) -> None:
        with self._lock:  # threads write, too
            print(line, file=self._stream or sys.stderr, flush=True)
