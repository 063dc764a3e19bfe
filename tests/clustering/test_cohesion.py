"""Silhouettes and FedGWC's score, by hand."""

import numpy as np
import pytest

from covey.clustering.cohesion import ranked_distances, silhouette, wasserstein_adjusted
from covey.errors import CoveyError


def test_silhouette_of_four_points_on_a_line() -> None:
    at = np.array([0.0, 1.0, 10.0, 12.0])
    apart = np.abs(at[:, None] - at)
    by_hand = [(11 - 1) / 11, (10 - 1) / 10, (9.5 - 2) / 9.5, (11.5 - 2) / 11.5]
    assert silhouette(apart, [7, 7, 3, 3]) == pytest.approx(np.mean(by_hand))
    assert silhouette(apart, [0, 1, 1, 1]) == pytest.approx(
        np.mean([0, (1 - 10) / 10, (10 - 5.5) / 10, (12 - 6.5) / 12])
    )
    assert np.isnan(silhouette(apart, [0, 0, 0, 0]))
    with pytest.raises(CoveyError, match="4 members"):
        silhouette(apart[:3], [0, 0, 1, 1])


def test_ranked_labels_forget_which_label_it_was() -> None:
    counts = [[9, 1, 0], [0, 9, 1], [5, 5, 5], [10, 10, 10]]
    apart = ranked_distances(counts)
    assert apart[0, 1] == 0 and apart[2, 3] == pytest.approx(0, abs=1e-8)
    steps = np.array([0, 0.1, 0.9]) - 1 / 3
    assert apart[0, 2] == pytest.approx(np.sqrt((steps**2).mean()))
    assert wasserstein_adjusted(counts, [0, 0, 1, 1]) == pytest.approx(1.0, abs=1e-6)
    assert wasserstein_adjusted(counts, [0, 1, 0, 1]) < 0
    with pytest.raises(CoveyError, match="a sample each"):
        ranked_distances([[0, 0], [1, 1]])
