"""What every page of covey wears: its style, the switch between light and dark, the mark; and how a policy names its script."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from covey.report.draw.markup import tag

_DOTS = ((6, 6, "#2d48c5"), (14.5, 8, "#fe8b0f"), (8, 14.5, "#39c7ab"))  # three clients of a covey
MARK = tag(
    "svg",
    *(tag("circle", cx=x, cy=y, r=3.4, class_=f"fill c{i}") for i, (x, y, _) in enumerate(_DOTS)),
    class_="mark",
    viewBox="0 0 20 20",
    aria_hidden="true",
)
ICON = quote(  # the same as a data address: a page without an icon makes a browser ask its server for one
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20">'
    + "".join(f'<circle cx="{x}" cy="{y}" r="3.4" fill="{colour}"/>' for x, y, colour in _DOTS)
    + "</svg>"
)


def style() -> str:
    return _asset("page.css")


def palette() -> str:
    """The colours of light and dark ground, for a picture that stands in a file of its own."""
    light, dark = re.findall(r":root[^{]*\{([^}]*)\}", style())[:2]
    return f"svg {{{light}}}\n@media (prefers-color-scheme: dark) {{ svg {{{dark}}} }}\n"


def hues() -> str:
    """The classes c0 … c7, other, ink …, and q0 … q9, by which drawings name colours."""
    return "\n".join(line for line in style().splitlines() if re.match(r"\.(?:c|q|other|bad)\w* \{ --k:", line))


def theme() -> str:
    return _asset("theme.js")


def script() -> str:
    """Of reports and comparisons."""
    return theme() + _asset("page.js")


def digest(content: str) -> str:
    """How a content policy names a script or style that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


@functools.cache
def template(text: str) -> Any:
    """Compiled once: a jinja2 template that escapes everything and stops at what is missing."""
    from jinja2 import Environment, StrictUndefined

    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    ).from_string(text)


def _asset(name: str) -> str:
    return files("covey.report.assets").joinpath(name).read_text("utf-8")
