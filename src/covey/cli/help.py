"""How help looks: plain text, commands under their headings, examples line by line as they are typed.

typer would draw help with rich, which folds the lines of an example into one paragraph and takes longer to import than all the
rest of a help page takes.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from typer.core import TyperCommand, TyperGroup

from covey.errors import CoveyError, nearest

CONTEXT: dict[str, Any] = {"max_content_width": 100, "help_option_names": ["--help", "-h"]}


class Command(TyperCommand):
    """A command whose help keeps the lines of its examples."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_text(formatter, self.help or "")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_parameters(formatter, self.get_params(ctx))


class Group(TyperGroup):
    """A group that shows its commands, and those of the groups in it, under their headings."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_text(formatter, self.help or "")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        write_parameters(formatter, self.get_params(ctx))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        headings: dict[str, list[tuple[str, str]]] = {}
        for heading, name, command in self._visible():
            headings.setdefault(heading, []).append((name, first_sentence(command)))
        column = max((len(name) for rows in headings.values() for name, _ in rows), default=0)
        for heading, rows in headings.items():
            with formatter.section(bold(heading)):
                formatter.write_dl([(name.ljust(column), words) for name, words in sorted(rows, key=_of_a_group)])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # nothing to do is a mistake, and the help is how to correct it
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            known = [name for name, command in self.commands.items() if not command.hidden]
            raise CoveyError(f"`{ctx.command_path}` has no command '{args[0]}'{nearest(args[0], known)}")
        return super().resolve_command(ctx, args)

    def _visible(self, above: str = "") -> Iterator[tuple[str, str, click.Command]]:
        """(heading, name as typed, command), those of inner groups one by one: nobody has to look for them."""
        for name, command in self.commands.items():
            heading = above or getattr(command, "rich_help_panel", None) or "Commands"
            if isinstance(command, Group):
                yield from ((heading, f"{name} {inner}", c) for _, inner, c in command._visible(heading))
            elif not command.hidden:
                yield heading, name, command


def _of_a_group(row: tuple[str, str]) -> bool:
    """Commands of inner groups stand first under their heading, as `keys make` comes before `serve`."""
    return " " not in row[0]


def first_sentence(command: click.Command) -> str:
    """The paragraph that a command's help begins with, on one line."""
    return " ".join((command.help or "").strip().split("\n\n")[0].split())


def write_text(formatter: click.HelpFormatter, text: str) -> None:
    """Paragraphs are wrapped; a paragraph that is indented is an example and stays as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        formatter.write_paragraph()
        with formatter.indentation():
            if paragraph.startswith(" "):
                for line in paragraph.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line[2:]}\n")
            else:
                formatter.write_text(paragraph)


def write_parameters(formatter: click.HelpFormatter, parameters: Sequence[click.Parameter]) -> None:
    shown = [p for p in parameters if not getattr(p, "hidden", False)]
    options = [p for p in shown if isinstance(p, click.Option)]
    arguments = [p for p in shown if not isinstance(p, click.Option)]
    for heading, rows in {"Arguments": [*map(_argument, arguments)], "Options": [*map(_option, options)]}.items():
        if rows:
            with formatter.section(bold(heading)):
                formatter.write_dl(rows)


def _argument(argument: click.Parameter) -> tuple[str, str]:
    name = (getattr(argument, "metavar", None) or str(argument.name).upper()) + "..." * (argument.nargs == -1)
    return name if argument.required else f"[{name}]", getattr(argument, "help", "") or ""


def _option(option: click.Option) -> tuple[str, str]:
    """An option as it is typed and what it is for; a default that says something is shown, "nothing" is not."""
    names = ", ".join(sorted(option.opts, key=len)) + "".join(f" / {name}" for name in option.secondary_opts)
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    default = str(option.default) if isinstance(option.default, str | Path) else ""
    note = " [required]" if option.required else f" [default: {default}]" if default else ""
    return names + value, (option.help or "") + note


def bold(heading: str) -> str:
    """A heading that stands out where the terminal can do that; click takes the style away where there is none."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return heading if plain else click.style(heading, bold=True)


def refuse(problem: click.ClickException) -> NoReturn:
    """A mistake in the arguments as one sentence, with the nearest option there is."""
    context = getattr(problem, "ctx", None)
    path = context.command_path if context else "covey"
    if isinstance(problem, click.NoSuchOption):
        options = (
            [o for p in context.command.get_params(context) for o in (*p.opts, *p.secondary_opts)] if context else []
        )
        known = [option for option in options if option.startswith("--")]
        raise CoveyError(f"`{path}` has no option '{problem.option_name}'{nearest(problem.option_name, known)}")
    words = problem.format_message().strip().rstrip(".")
    raise CoveyError(f"{words[:1].lower()}{words[1:]}; `{path} --help` shows what is expected")
