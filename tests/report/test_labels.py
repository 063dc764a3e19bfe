"""Names as their authors write them."""

from __future__ import annotations

import pytest

from covey.report.format import percent, plain
from covey.report.labels import as_written


@pytest.mark.parametrize(
    ("row", "written"),
    [
        ("fedavg", "FedAvg"),
        ("fedavg_ft", "FedAvg + fine-tuning"),
        ("Dir(0.8) fedcaprivacy", "Dir(0.8) FedCAPrivacy"),
        ("Dir(0.1), fedavg − 1.5 × FedCAPrivacy", "Dir(0.1), FedAvg − 1.5 × FedCAPrivacy"),
        ("local", "Local training"),
        ("Dir(0.8) local", "Dir(0.8) Local training"),
        ("5 epochs, local", "5 epochs, local"),
        ("local epochs", "local epochs"),
        (
            "where `ifca` is set, fedprox.md and algorithm/ifca say more",
            "where `ifca` is set, fedprox.md and algorithm/ifca say more",
        ),
    ],
)
def test_algorithms_are_named_as_their_authors_do(row: str, written: str) -> None:
    assert as_written(row) == written == as_written(written)


def test_a_minus_is_one() -> None:
    assert [plain(v) for v in (-0.5, -1e-5, -1234.0, float("-inf"), 0.0)] == ["−0.5", "−1e-5", "−1,234", "−∞", "0"]
    assert percent(-0.031) == "−3.1\u00a0%"
