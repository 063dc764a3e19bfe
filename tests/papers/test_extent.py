"""Settings and remarks follow the data that are here; runs on other data are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.errors import CoveyError
from covey.papers import extent
from covey.papers.afc_cfl import settings as afc
from covey.papers.harness import Options
from covey.papers.mingledpie import settings as mingledpie

PART, WHOLE = (
    f"cifar10: {size} samples, sha256:0"
    for size in ("20,000 training and 5,000 test", "50,000 training and 10,000 test")
)


@pytest.mark.parametrize("file", ["cifar10.npz", "cifar10_full.npz", ""])
def test_a_part_has_other_settings_and_a_remark(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    if file:
        (tmp_path / file).touch()  # the name is what tells: nothing is decoded for a plan
    options, part = Options(tmp_path, dataset="cifar10"), file == "cifar10.npz"
    assert extent.in_part("cifar10") == part and not extent.in_part("mnist")
    assert mingledpie.base("cifar10", options)["partition"]["samples"] == (150 if part else 400)
    assert mingledpie.base("cifar10", options, heterogeneous=True)["partition"]["samples"] == (120 if part else 300)
    assert afc.base(options)["partition"]["public"] == (1000 if part else 2500)
    assert ("20,000 of the 50,000" in mingledpie.remarks("cifar10")[1]) == part
    assert bool(extent.of_part("cifar10")) == part

    own, other = (PART, WHOLE) if part else (WHOLE, PART)
    for line in (own, "mnist: 60,000 training and 10,000 test samples, sha256:0", ""):
        extent.refuse_other(line)
    if file:
        with pytest.raises(CoveyError, match=r"a run was made on .* samples of cifar10, and here is"):
            extent.refuse_other(other)
    else:
        extent.refuse_other(other)  # nothing is here that it could differ from
