"""Numbers and words as people read them. Names of things are the registries' business: `report.labels`."""

from __future__ import annotations

import math

NBSP = "\u00a0"  # a number and its unit never part at the end of a line


def sentence_case(name: object) -> str:
    """'cluster_identity' -> 'Cluster identity'."""
    words = str(name).replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def percent(value: float) -> str:
    return f"{100 * value:.1f}{NBSP}%".replace("-", "−")


def figure_of(value: float, as_share: bool) -> str:
    """A metric's figure."""
    return percent(value) if as_share else plain(value)


def plain(value: float) -> str:
    """Three significant digits or so, no exponent where people would not write one."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size, sign = abs(value), "−" * (value < 0)
    if size >= 1e6 or 0 < size < 1e-3:
        mantissa, exponent = f"{size:.1e}".split("e")
        return f"{sign}{mantissa.removesuffix('.0')}e{int(exponent)}"
    if size >= 100 or value == int(value):
        return f"{sign}{size:,.0f}"
    return f"{sign}{size:.3g}"


def size(count: float) -> str:
    """Bytes, in decimal units: 2_540_000 -> '2.5 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f}{NBSP}B" if unit == "B" else f"{count:.3g}{NBSP}{unit}"
        count /= 1000
    return f"{count:.3g}{NBSP}TB"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f}{NBSP}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}{NBSP}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}{NBSP}min {whole % 60}{NBSP}s"
    if whole < 48 * 3600:
        return f"{whole // 3600}{NBSP}h {whole % 3600 // 60}{NBSP}min"
    return f"{whole / 86400:.1f} days"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
