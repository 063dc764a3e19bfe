"""Soft spectral clustering of models, as FedCAPrivacy's cloud provider runs it on blinded rows.

Affinity A = exp(-‖B_l - B_j‖₂ / 2γ) (the norm is not squared), D its row sums, L = I - D^{-1/2} A D^{-1/2}. k-means on
the normalised rows of the c smoothest eigenvectors of L gives one label each; the distance to the labels' centres in
the top c eigenvectors of A gives memberships: row j belongs to every cluster whose affinity is not below its mean.

Only differences of rows enter, so a common blind changes nothing. Two readings of the paper are corrected here: its
`D = diag(A)` means row sums, and its "last c eigenvectors of L" those of the smallest eigenvalues.

A cluster of one would hand out a raw model, and in a cluster of two each member can compute the other's, so clusters
below a minimum size (3, unless told otherwise) are dissolved. Overlapping clusters can still differ by a single
member: `exposed` finds who could be computed by whom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.clustering.features import k_means, nearest_centre
from covey.errors import CoveyError

Floats = NDArray[np.float64]
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
_TIE = 1e-9  # affinities of one row that differ by less, relatively, are equal up to rounding


@dataclass(frozen=True)
class SoftClusters:
    memberships: NDArray[np.bool_]  # φ [n, clusters]; every row has at least one, every cluster the minimum size
    labels: NDArray[np.int64]  # [n] from k-means, before soft membership and before small clusters are dissolved
    affinity_quantiles: Floats  # minimum, quartiles and maximum of A off the diagonal: all near 0 or 1 means a wrong γ
    eigenvalues: Floats  # the c + 1 smallest of L (fewer if n is smaller)
    eigengap: (
        float  # between the c-th and the next eigenvalue of L; near 0 means no c clusters are there; NaN if n <= c
    )
    gamma: float  # the scale that was used on the rows
    dissolved: int  # clusters below the minimum size


def distances(rows: ArrayLike) -> Floats:
    """Euclidean distances [n, n] of rows [n, d]."""
    points = np.asarray(rows, np.float64)
    points = points - points.mean(0)  # what the rows share would only cost digits, and time below
    squares = np.einsum("nd,nd->n", points, points)
    squared = squares[:, None] + squares - 2 * points @ points.T
    # Where almost everything cancels (equal rows), what is left is rounding: subtract first there.
    for i, j in np.argwhere(np.triu(squared <= 1e-8 * (squares[:, None] + squares), 1)):
        squared[i, j] = squared[j, i] = np.sum((points[i] - points[j]) ** 2)
    np.fill_diagonal(squared, 0.0)
    symmetric: Floats = np.sqrt(np.maximum((squared + squared.T) / 2, 0.0))
    return symmetric


def affinities(rows: ArrayLike, gamma: float, *, median: bool = False) -> tuple[Floats, float]:
    """A and the γ that was used: with `median`, γ times the median distance between two different rows."""
    if not 0 < gamma < np.inf:
        raise CoveyError(f"gamma is {gamma}; it must be a positive number, the paper takes 0.5")
    apart = distances(rows)
    if median:
        different = apart[apart > 0]
        gamma *= float(np.median(different)) if different.size else 1.0
    return np.exp(-apart / (2 * gamma)), gamma


def soft_spectral(
    rows: ArrayLike,
    clusters: int,
    gamma: float,
    rng: np.random.Generator,
    *,
    median: bool = False,
    min_size: int = 3,
) -> SoftClusters:
    """Clusters rows [n, d] into at most `clusters` overlapping groups. Deterministic given `rng`."""
    points = np.asarray(rows, np.float64)
    if points.ndim != 2 or clusters < 1 or min_size < 1:
        raise CoveyError(
            f"expected rows [n, d], clusters >= 1 and min_size >= 1; found {points.shape}, {clusters}, {min_size}"
        )
    if len(points) < min_size:
        raise CoveyError(f"{len(points)} participants cannot form a cluster of {min_size}; wait for more of them")
    if not np.all(np.isfinite(points)):
        raise CoveyError("a model to cluster is not finite; lower the learning rate or leave that participant out")
    n = len(points)
    affinity, scale = affinities(points, gamma, median=median)
    inverse_root = 1 / np.sqrt(affinity.sum(1))
    laplacian = np.eye(n) - inverse_root[:, None] * affinity * inverse_root
    eigenvalues, vectors = np.linalg.eigh(laplacian)  # ascending
    twins = (affinity == 1).argmax(1)  # the first row that each is equal to
    labels = _labels(_normalised(_shared(vectors[:, :clusters], twins)), clusters, rng)
    embedding = _normalised(_shared(np.linalg.eigh(affinity)[1][:, -clusters:], twins))
    towards = _towards_centres(embedding, labels, gamma)
    phi, dissolved = enforce_size(soft_memberships(towards), towards, min_size)
    off_diagonal = affinity[~np.eye(n, dtype=bool)]
    return SoftClusters(
        memberships=phi,
        labels=labels,
        affinity_quantiles=np.quantile(off_diagonal, _QUANTILES) if n > 1 else np.ones(len(_QUANTILES)),
        eigenvalues=eigenvalues[: clusters + 1],
        eigengap=float(eigenvalues[clusters] - eigenvalues[clusters - 1]) if n > clusters else float("nan"),
        gamma=scale,
        dissolved=dissolved,
    )


def soft_memberships(towards: ArrayLike) -> NDArray[np.bool_]:
    """φ_jk = 1 where a_jk >= mean_k a_jk; a tie counts as in, so that rounding leaves nobody without a cluster."""
    a = np.asarray(towards, np.float64)
    inside: NDArray[np.bool_] = a >= a.mean(1, keepdims=True) * (1 - _TIE)
    return inside


def enforce_size(phi: ArrayLike, towards: ArrayLike, min_size: int) -> tuple[NDArray[np.bool_], int]:
    """Dissolves the smallest cluster until none is below `min_size`; who has none left joins the nearest that remains."""
    inside, a = np.array(phi, bool), np.asarray(towards, np.float64)
    if len(inside) < min_size:
        raise CoveyError(f"{len(inside)} participants cannot form a cluster of {min_size}; wait for more of them")
    before = inside.shape[1]
    while inside.shape[1] > 1 and (sizes := inside.sum(0)).min() < min_size:
        kept = np.arange(inside.shape[1]) != sizes.argmin()
        inside, a = inside[:, kept], a[:, kept]
        homeless = np.flatnonzero(~inside.any(1))
        inside[homeless, a[homeless].argmax(1)] = True
    if inside.shape[1] == 1:
        inside[:] = True  # one cluster is everybody's
    return inside, before - inside.shape[1]


def exposed(phi: ArrayLike) -> NDArray[np.bool_]:
    """[n, n]: entry (i, j) says that participant i, from the means of its clusters, their members and its own model, can
    compute the model of j exactly: j alone is a combination of what i knows.
    """
    inside = np.asarray(phi, np.float64)
    n = len(inside)
    computable = np.zeros((n, n), bool)
    for i in range(n):
        known = np.column_stack([inside[:, inside[i] > 0], np.eye(n)[i]])
        basis, singular, _ = np.linalg.svd(known, full_matrices=False)
        basis = basis[:, singular > 1e-9 * singular[0]]
        computable[i] = (
            np.einsum("nr,nr->n", basis, basis) > 1 - 1e-9
        )  # e_j lies in the span iff its projection has norm 1
        computable[i, i] = False
    return computable


def _shared(vectors: Floats, twins: NDArray[np.int64]) -> Floats:
    """Eigenvectors [n, c], the same for equal rows. The difference of two equal rows is an eigenvector, too, which tells nothing;
    a basis of an eigenvalue that comes more than once holds a share of it that hangs on the library and the processor.
    """
    sums, counts = np.zeros_like(vectors), np.bincount(twins, minlength=len(twins))
    np.add.at(sums, twins, vectors)
    shared: Floats = sums[twins] / counts[twins][:, None]
    return shared


def _normalised(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.where(norms > 0, norms, 1.0)
    return unit


def _labels(points: Floats, clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Labels 0, 1, ... without gaps, by k-means. Equal points share a label, so there may be fewer than asked for."""
    # Eigenvectors of almost equal rows are equal up to rounding; what is closer than this must not become clusters.
    distinct = len(np.unique(np.round(points, 7), axis=0))
    centres = k_means(points, min(clusters, distinct), rng, restarts=10, steps=300)
    return np.unique(nearest_centre(points, centres), return_inverse=True)[1].astype(np.int64)


def _towards_centres(embedding: Floats, labels: NDArray[np.int64], gamma: float) -> Floats:
    """a_jk = exp(-‖E_j - ε_k‖₂ / 2γ), [n, clusters]. The embedding has unit rows, so γ is not rescaled here."""
    centres = np.stack([embedding[labels == k].mean(0) for k in range(labels.max() + 1)])
    apart = np.linalg.norm(embedding[:, None] - centres, axis=2)
    return np.asarray(np.exp(-apart / (2 * gamma)))
