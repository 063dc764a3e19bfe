"""A run that is wanted finished: read back where it is, resumed where it was interrupted, else run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from covey.data.federation import Federation
from covey.data.names import SILOS, is_given, is_path, people_call
from covey.data.sources.files import data_folder
from covey.data.sources.load import load
from covey.engines.settle import described
from covey.errors import CoveyError, Damaged, Unavailable
from covey.experiment.experiment import Experiment
from covey.results.folder import RunFolder
from covey.results.provenance import DATA
from covey.rounds.loop import Callback, run


def complete(
    experiment: Experiment,
    folder: RunFolder,
    *,
    callbacks: Sequence[Callback] = (),
    federation: Federation | None = None,
    quiet: bool = False,
    figures_only: bool = False,
) -> RunFolder:
    """The folder, with a finished run of this experiment in it; `figures_only`: as `run` has it, where it is run now.

    The caller names the folder by the experiment (`RunFolder.named_by_hash`) or refuses one of another (`refuse_other`): what
    lies there is taken for this experiment's.
    """
    if folder.finished:
        if federation is None:
            refuse_other_data(experiment, folder)
    else:
        command = f"covey run {folder.config}"
        try:
            run(
                experiment,
                out=folder.path,
                callbacks=callbacks,
                federation=federation,
                resume=folder.begun,
                quiet=quiet,
                command=command,
                figures_only=figures_only,
            )
        except Damaged as e:  # somebody who asked for a table, say, has no run of their own to start again
            raise Unavailable(f"{e.found}: remove the folder {folder.path}, and repeat this command") from e
    return folder


def refuse_other_data(experiment: Experiment, folder: RunFolder) -> None:
    """A finished run is not read back where its dataset's name means other data than it was made on: a part of them, say, or all.

    Data of one's own are known by the fingerprint in the experiment. Runs from before they told, and machines without the data,
    pass.
    """
    name = experiment.dataset
    if is_path(name) or is_given(name) or name == SILOS or not folder.finished:
        return
    made_on = {one[DATA] for one in folder.result_json().get("provenance", []) if one.get(DATA)}
    if made_on and (here := _described(name, data_folder())) and made_on != {here}:
        raise Unavailable(
            f"{folder.path} was made on other data ({'; '.join(sorted(made_on))}) than there are here ({here}): choose another "
            "--out, or set COVEY_DATA to where those data are"
        )


@cache
def _described(name: str, folder: Path) -> str:
    """Empty: they are not here."""
    try:
        return described(people_call(name), load(name, folder))
    except CoveyError:
        return ""
