import pytest

from covey.errors import CoveyError
from covey.measures import Measure


def test_a_measure_that_nobody_could_show_is_refused() -> None:
    assert Measure("Condition").shown == "line"
    with pytest.raises(CoveyError, match="'pie': choose one of line, "):
        Measure("Condition", shown="pie")
