"""`covey`: the commands under their headings, and how a command ends.

Bad input, and code of the user's own that fails, end in one sentence and exit code 2, an interruption in how to go on and the code
that shells give the signal; a traceback means a bug (or COVEY_DEBUG=1).
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

import click
import typer

from covey.cli import data, deploy, experiment, keys, look, models, reproduce
from covey.cli.help import CONTEXT, Command, Group, refuse
from covey.cli.interrupts import Interrupted, interruptible
from covey.errors import CoveyError, CoveyWarning, printable
from covey.names import fault_of_own_code

app = typer.Typer(
    name="covey", cls=Group, context_settings=CONTEXT, rich_markup_mode=None, pretty_exceptions_enable=False
)
keys_app = typer.Typer(cls=Group, rich_markup_mode=None)
data_app = typer.Typer(cls=Group, rich_markup_mode=None)

_FORMAT = warnings.formatwarning


def _print_version(wanted: bool) -> None:
    if wanted:
        from covey.version import __version__

        print(f"covey {__version__}")
        raise typer.Exit


@app.callback()
def covey(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Private clustered federated learning: train it, protect it, attack it, audit it, deploy it.

    To begin with:

        covey run                        the main job, in about a minute
        covey list presets               what else there is to run
        covey audit ifca-digits          what leaks, and to whom
        covey COMMAND --help             examples of each
    """


@keys_app.callback()
def _keys() -> None:
    """Keys of a deployment: every party's folder, made where you trust the machine.

    Then `covey serve`, `covey join` and, for an algorithm with two servers, `covey second-server`.
    """


@data_app.callback()
def _data() -> None:
    """Datasets: what is there, download, verify. COVEY_DATA sets the folder."""


INTERRUPTED = 130  # what typer makes of KeyboardInterrupt
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}  # a benchmark has options of its own

HEADINGS: dict[str, dict[str, Callable[..., None]]] = {
    "Experiment": {
        "run": experiment.run,
        "resume": experiment.resume,
        "audit": experiment.audit,
        "reproduce": reproduce.reproduce,
        "bench": experiment.bench,
    },
    "Look": {"list": look.list_, "compare": look.compare, "ui": look.ui},
    "Results": {"export": models.export, "predict": models.predict},
    "Deploy": {
        "serve": deploy.serve,
        "join": deploy.join,
        "second-server": deploy.second_server,
        "status": deploy.status,
    },
}
KEYS: dict[str, Callable[..., None]] = {
    "make": keys.make,
    "own": keys.own,
    "request": keys.request,
    "approve": keys.approve,
    "accept": keys.accept,
    "revoke": keys.revoke,
    "add": keys.add,
    "renew": keys.renew,
    "inspect": keys.inspect,
}
DATA: dict[str, Callable[..., None]] = {
    "list": data.list_,
    "check": data.check,
    "get": data.get,
    "export": data.export,
}

for heading, group in HEADINGS.items():
    for name, command in group.items():
        settings = PASS_ON if command is experiment.bench else None
        app.command(name, cls=Command, context_settings=settings, rich_help_panel=heading)(command)
app.command("csp", cls=Command, hidden=True)(deploy.second_server)  # its name before
for name, command in KEYS.items():
    keys_app.command(name, cls=Command)(command)
for name, command in DATA.items():
    data_app.command(name, cls=Command)(command)
app.add_typer(keys_app, name="keys", rich_help_panel="Deploy")
app.add_typer(data_app, name="data", rich_help_panel="Data")


@cache
def commands() -> click.Command:
    """What typer makes of all of them: read once, since that takes longer than many a command."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, of this process unless told otherwise; its exit code."""
    warnings.formatwarning = _in_one_line
    if (
        arguments is None
    ):  # a process of its own: most of what it reads stays, so that looking for garbage in it is in vain
        gc.set_threshold(50_000, 20, 20)
    with interruptible() as interrupts:
        try:
            code = run(arguments)
            sys.stdout.flush()
        except Interrupted as e:
            print(f"\ncovey: {e}", file=sys.stderr)
            return interrupts.exit_code
        except CoveyError as e:
            print("covey: " + "\n".join(map(printable, str(e).splitlines())), file=sys.stderr)
            return 2
        except BrokenPipeError:  # whoever reads has seen enough, as in `covey list | head`
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # else Python complains when it flushes at the end
            return 1
        except OSError as e:
            if e.filename is None:
                raise
            print(f"covey: {e.filename} cannot be used: {e.strerror}", file=sys.stderr)
            return 2
        except Exception as e:
            sentence = _shortage(e) or fault_of_own_code(e)
            if sentence is None:
                raise
            print(f"covey: {printable(sentence)}", file=sys.stderr)
            return 2
        if code == INTERRUPTED:
            print("\ncovey: interrupted", file=sys.stderr)
            return interrupts.exit_code
        return code


def _shortage(error: Exception) -> str | None:
    """What to do where memory is short, or a package cannot be loaded (which is another thing than that it is not installed)."""
    if isinstance(error, MemoryError) or ("alloc" in str(error) and "memory" in str(error)):
        return (
            f"this machine has too little memory for it ({printable(str(error), 200) or 'MemoryError'}): end other programs, take "
            "fewer workers or clients at a time (engine.workers, engine.clients_at_once), or a smaller model"
        )
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        return (
            f"{error.name or 'a package'} is installed but cannot be loaded ({printable(str(error), 200)}): memory may be short, "
            "or its installation broken"
        )
    return None


def _in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """covey's own warnings without the place in its sources; others as Python writes them."""
    if issubclass(category, CoveyWarning):
        return f"covey: {message}\n"
    return _FORMAT(message, category, filename, lineno, line)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command as `main` does, but raises its refusal as CoveyError: for whoever shows sentences in another way."""
    try:
        code = commands()(arguments, prog_name="covey", standalone_mode=False)
    except click.ClickException as e:
        refuse(e)
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0
