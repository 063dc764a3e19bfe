"""Settings under which several algorithms cannot work, refused before the first round."""

from __future__ import annotations

from covey.algorithms.contract import Setting
from covey.errors import CoveyError


def refuse_shared_layers(name: str, setting: Setting) -> None:
    """For algorithms whose papers average whole models only."""
    if not bool(setting.personal.all()):
        raise CoveyError(f"{name} averages whole models and has no shared layers: set layers.personal = 0")


def refuse_equal_starts(name: str, setting: Setting) -> None:
    """For algorithms that tell clusters apart by the losses of their models: equal models never part for a reason."""
    if len(setting.start) > 1 and bool((setting.start == setting.start[0]).all()):
        raise CoveyError(
            f"all {len(setting.start)} models of {name} start equal, so no client could prefer one: set "
            "start.common = false, or start.pretrain_epochs > 0 with a partition that has public samples"
        )
