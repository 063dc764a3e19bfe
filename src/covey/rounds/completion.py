"""A run that is wanted finished: read back where it is, resumed where it was interrupted, else run."""

from __future__ import annotations

from collections.abc import Sequence

from covey.data.federation import Federation
from covey.experiment.experiment import Experiment
from covey.results.folder import RunFolder
from covey.rounds.loop import Callback, run


def complete(
    experiment: Experiment,
    folder: RunFolder,
    *,
    callbacks: Sequence[Callback] = (),
    federation: Federation | None = None,
    quiet: bool = False,
) -> RunFolder:
    """The folder, with a finished run of this experiment in it.

    The caller names the folder by the experiment (`RunFolder.named_by_hash`) or refuses one of another (`refuse_other`): what
    lies there is taken for this experiment's.
    """
    if not folder.finished:
        command = f"covey run {folder.config}"
        run(
            experiment,
            out=folder.path,
            callbacks=callbacks,
            federation=federation,
            resume=folder.begun,
            quiet=quiet,
            command=command,
        )
    return folder
