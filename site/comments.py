"""Fields say what they are in the comment behind them; the reference shows that as their docstring."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class Comments(griffe.Extension):
    def on_attribute_instance(self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **rest: Any) -> None:
        """Of `seeds: int = 0  # 0: as many as usual` the words behind the mark, where the field has no docstring."""
        if attr.docstring or attr.lineno is None or attr.endlineno is None or not attr.lines_collection:
            return
        line = attr.lines_collection[attr.filepath][attr.endlineno - 1]
        _, mark, words = line.partition("  # ")
        if mark and words.strip() and not words.startswith(("type:", "noqa")) and isinstance(node, ast.AnnAssign):
            attr.docstring = griffe.Docstring(words.strip(), lineno=attr.lineno, endlineno=attr.lineno, parent=attr)
