"""HTML and SVG that is safe by construction: `tag` escapes every child and attribute that is not already `Html`."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable


class Html(str):
    """Text that is markup already. jinja2 knows it by `__html__` and escapes every other string."""

    __slots__ = ()

    def __html__(self) -> Html:
        return self


def text(value: object) -> Html:
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def join(parts: Iterable[object]) -> Html:
    return Html("".join(text(part) for part in parts))


def tag(element: str, *children: object, **attributes: object) -> Html:
    """`tag("text", label, x="3%", text_anchor="end", class_="tick")`; an attribute that is None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(short(value) if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{element}{written}>{join(children)}</{element}>")


def short(value: float) -> str:
    """A coordinate in as few characters as a screen can tell apart."""
    if not math.isfinite(value):
        raise ValueError(f"a coordinate must be finite, not {value}")
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def percent_of(fraction: float) -> str:
    """A place on a fluid axis: 0.125 -> '12.5%'."""
    return f"{short(100 * fraction)}%"
