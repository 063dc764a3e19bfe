"""Pictures of a property attack for the report: t-SNE of the updates, and how alike consecutive updates are.

A picture is a table of small lists, drawn by whoever reads the finding:
    {"kind": "scatter", "title", "x", "y", "label"}          one dot each, coloured by label
    {"kind": "histogram", "title", "edges", "counts", "of", "counted"}   counts between consecutive edges, of what
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.attacks.property.score import Evidence, Labels
from covey.randomness import generator, key

DOTS = 250  # t-SNE takes seconds for these, minutes for all


def pictures(evidence: Evidence, labels: Labels, seed: int) -> list[dict[str, Any]]:
    """t-SNE of updates of the victim's cluster coloured by truth; cosine similarity of updates with the round before."""
    drawn = [] if (dots := t_sne(evidence, labels, seed)) is None else [dots]
    known = evidence.cosine[labels.victim & ~np.isnan(evidence.cosine)]
    if len(known):
        counts, edges = np.histogram(known, bins=20, range=(-1.0, 1.0))
        title = f"cosine similarity of consecutive updates: mean {known.mean():.2f}, deviation {known.std():.2f}"
        bins = {"edges": edges.round(2).tolist(), "counts": counts.tolist()}
        drawn.append({"kind": "histogram", "title": title, **bins, "of": "cosine similarity", "counted": "rounds"})
    return drawn


def t_sne(evidence: Evidence, labels: Labels, seed: int) -> dict[str, Any] | None:
    """A map of the updates of the victim's cluster; None: too few of them."""
    chosen = np.flatnonzero(labels.victim)
    if len(chosen) > DOTS:
        chosen = np.sort(generator(seed, "t-sne").permutation(chosen)[:DOTS])
    if len(chosen) < 10:
        return None
    from sklearn.manifold import TSNE

    at: NDArray[np.float32] = TSNE(
        perplexity=min(30.0, (len(chosen) - 1) / 3), init="pca", random_state=key(seed, "t-sne") % 2**31
    ).fit_transform(evidence.observed[chosen].astype(np.float32))
    return {
        "kind": "scatter",
        "title": "t-SNE of the updates of the victim's cluster",
        "x": at[:, 0].round(2).tolist(),
        "y": at[:, 1].round(2).tolist(),
        "label": ["property" if p else "other" for p in labels.property[chosen]],
    }
