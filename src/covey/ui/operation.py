"""The page of a party of a deployment, rendered from its `status.json` when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from covey.report import assets
from covey.report.draw.markup import Html
from covey.report.format import duration, size
from covey.report.status import expiry, privacy, progress, state
from covey.results.status import AWAY, COORDINATOR, Peer, Status, now, read

PAGE = "status.html"


def status_page(folder: Path, name: str) -> str:
    return render(read(folder), name, now())


def render(status: Status, name: str, moment: float) -> str:
    late = status.late(moment)
    shown: Mapping[str, Any] = {
        "status": status,
        "folder": name,
        "progress": progress(status, moment),
        "there": sum(peer.state != AWAY for peer in status.peers),
        "written": duration(max(0.0, moment - status.updated)),
        "took": duration(status.seconds),
        "troubles": status.troubles(moment),
        "peers": [_peer(peer, late, moment, status.behind(peer)) for peer in status.peers],
        "refusals": [
            {"when": duration(max(0.0, moment - one.when)), "round": one.round, "name": one.name, "why": one.why}
            for one in status.refusals
        ],
        "privacy": privacy(status),
        "nothing_spent": _nothing_spent(status),
        "expiry": expiry(status, moment),
        "icon": Html(assets.ICON),
        "mark": assets.MARK,
        "style": Html(style()),
        "script": Html(script()),
    }
    page: str = assets.template(_text("status.html")).render(shown)
    return page


def style() -> str:
    return assets.style() + _text("status.css")


def script() -> str:
    return assets.theme() + _text("status.js")


def policy() -> str:
    return (
        f"style-src '{assets.digest(style())}'; script-src '{assets.digest(script())}'; connect-src 'self'; img-src data:; "
        "form-action 'none'"
    )


def _peer(peer: Peer, late: dict[str, float], moment: float, behind: int | None) -> dict[str, Any]:
    figures = {
        "Answered": f"{peer.answered:,}",
        "Missed": f"{peer.missed:,}",
        "Refused": f"{peer.refused:,}",
        "Last took": duration(peer.seconds) if peer.seconds else "–",
        "Up": size(peer.up),
        "Down": size(peer.down),
    }
    kind = "late" if peer.name in late else peer.state
    return {
        "name": peer.name,
        "state": state(peer, late, moment, behind),
        "kind": kind,
        "figures": list(figures.items()),
    }


def _nothing_spent(status: Status) -> str:
    whose = "its silos may spend of theirs, which they alone know" if status.kind == COORDINATOR else "it adds no noise"
    return f"This {status.kind} has booked nothing; {whose}."


def _text(name: str) -> str:
    return files("covey.ui").joinpath(name).read_text("utf-8")
