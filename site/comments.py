"""Fields say what they are in the comment behind them: the reference shows that as their docstring, and what their default is."""

from __future__ import annotations

import ast
from typing import Any

import griffe

from covey.algorithms import ALGORITHMS
from covey.data.partitions import PARTITIONS

REGISTRIES = {"ALGORITHMS": ALGORITHMS, "PARTITIONS": PARTITIONS}


class Comments(griffe.Extension):
    def on_attribute_instance(self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **rest: Any) -> None:
        """Of `seeds: int = 0  # 0: as many as usual` the words behind the mark, where the field has no docstring."""
        if isinstance(node, ast.AnnAssign):
            attr.value = default(attr.value)
        if attr.docstring or attr.lineno is None or attr.endlineno is None or not attr.lines_collection:
            return
        line = attr.lines_collection[attr.filepath][attr.endlineno - 1]
        _, mark, words = line.partition("  # ")
        if mark and words.strip() and not words.startswith(("type:", "noqa")) and isinstance(node, ast.AnnAssign):
            attr.docstring = griffe.Docstring(words.strip(), lineno=attr.lineno, endlineno=attr.lineno, parent=attr)


def default(value: Any) -> Any:
    """Of `config.later(0)` the 0, of a field made by a function what that makes; other values as they are."""
    if not isinstance(value, griffe.ExprCall):
        return value
    called, given = str(value.function), value.arguments
    if called in ("later", "config.later"):
        return given[0]
    if called == "config.choose":
        return f"{REGISTRIES[str(given[0])][ast.literal_eval(str(given[1]))].__name__}()"
    made = next(
        (one.value for one in given if isinstance(one, griffe.ExprKeyword) and one.name == "default_factory"), None
    )
    return default(made.body) if isinstance(made, griffe.ExprLambda) else value
