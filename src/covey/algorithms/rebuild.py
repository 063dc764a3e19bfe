"""From opened sums back to cluster models, and what a client remembers of them; without randomness or cryptography.

Group `a` holds everyone who shows cluster `a`. With `S_a` the sum of their models and `x_ab` how many of them are truly of
cluster `b`, the mean models `Θ*` satisfy `S = H Θ*`, up to how much the members of one cluster differ from each other.

The paper divides `S_a` by the size of the group and then solves with the counts as they are; every row is then off by that
factor. Here both sides are sums. A cluster that nobody chose is a column of zeros, and in small federations two columns may
coincide: such clusters are not determined by the sums, and keep the model that they had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Client, Setting
from covey.learn.work import Compute, Work

Matrix = NDArray[np.float64]
_STRETCH = 16_384  # numbers of each sum that are taken together, unless these are more multiplications than …
_ALONE = 1 << 18  # … OpenBLAS does without its threads, which may take 10 ms to wake for each product
_RANK = 1e-9  # singular values below this share of the largest are zero; counts up to thousands stay far above it


@dataclass(frozen=True)
class Rebuilt:
    """Cluster models as clients get them out of a broadcast."""

    models: Tensor  # [k, d]; rows that are not known hold zeros
    rows: list[Tensor]  # the same, one by one: what clients remember
    known: list[bool]
    shared: Tensor | None  # [d] the mean over all clients, where layers are shared


def solve(counts: Matrix, sums: Tensor) -> tuple[Tensor, list[bool]]:
    """`H Θ = S` by least squares over the clusters that it determines: (Θ [k, d], which rows it determines)."""
    inverse = _inverse(counts)
    resolution = inverse @ counts  # row b is e_b iff cluster b is determined
    known = [bool(np.abs(row - unit).max() < 1e-6) for row, unit in zip(resolution, np.eye(len(counts)))]
    return _in_stretches(sums, partial(_product, inverse * np.array(known)[:, None])), known


def mingled_means(sums: Tensor, sizes: NDArray[np.int64]) -> tuple[Tensor, list[bool]]:
    """No rebuilding: the mean of each group, false members and all (Table V, ① + ②)."""
    return _in_stretches(sums, _per(sizes)), (sizes > 0).tolist()


def ideal(sums: Tensor, sizes: NDArray[np.int64], rate: float) -> tuple[Tensor, list[bool]]:
    """Rebuilding with expected shares in the place of counts (Table V, ③): equal clusters, every other one shown at `rate`."""
    k, means = len(sums), _per(sizes)
    shares = (rate + (1.0 - rate) * np.eye(k)) / (1.0 + (k - 1) * rate)  # rows sum to 1
    inverse = np.linalg.inv(shares).astype(np.float64)
    return _in_stretches(sums, lambda part: _product(inverse, means(part))), (sizes > 0).tolist()


def _in_stretches(sums: Tensor, made: Callable[[Tensor], Tensor]) -> Tensor:
    """[k, d] in float32, of what is `made` of sums in float64: a few columns at a time, which stay in a core's cache."""
    models = torch.empty(sums.shape, device=sums.device)
    width = sums.shape[1] if sums.is_cuda else max(1, min(_STRETCH, _ALONE // len(sums) ** 2))
    for part, into in zip(torch.split(sums, width, dim=1), torch.split(models, width, dim=1)):
        into.copy_(made(part.double()))
    return models


def _per(sizes: NDArray[np.int64]) -> Callable[[Tensor], Tensor]:
    divisors = torch.from_numpy(np.maximum(sizes, 1).astype(np.float64))[:, None]
    return lambda sums: sums / divisors.to(sums.device)


def _product(matrix: Matrix, sums: Tensor) -> Tensor:
    """By BLAS on a CPU. A GPU's adds in an order of its own, and BLAS does so for one column: these go term by term."""
    if sums.is_cuda or sums.shape[1] == 1:
        return _term_by_term(matrix, sums)
    return torch.from_numpy(matrix @ sums.numpy())


def _term_by_term(matrix: Matrix, sums: Tensor) -> Tensor:
    """Each term rounded once, with what it is added to: bit for bit what BLAS does on a CPU where rows are few."""
    columns = torch.from_numpy(matrix).to(sums.device).T[:, :, None]  # [k, k, 1]
    total = torch.zeros_like(sums)
    for column, one in zip(columns, sums):
        total.addcmul_(column, one)
    return total


RATIOS = np.concatenate([[0.0], np.logspace(-4, 5, 73)])  # of the members' spread to the models' step, both squared
COMMON = np.concatenate(
    [[0.0], np.logspace(-2, 3, 21)]
)  # of what all models move alike to what each moves alone, both squared


def steady(counts: Matrix, sums: Matrix, last: Matrix, pairing: float, own: NDArray[np.bool_]) -> Matrix:
    """The cluster models as the sums let expect them of models that were `last`: a Wiener filter, Θ = Θ' + K (S - H Θ').

    What the sums hold beyond the last models, R = S - H Θ', is the step of the models, H ΔΘ, and what members differ by, A δ. With
    steps of covariance τ²(I + c 11ᵀ) and differences of variance s² in each coordinate, R Rᵀ/d has the mean
    τ²(H Hᵀ + c (H1)(H1)ᵀ) + s² A Aᵀ, and K = (I + c 11ᵀ) Hᵀ times the inverse of that over τ². The ratios s²/τ² and c are the
    likeliest of a grid; A Aᵀ is taken as for `noise_gain`. Where models still move fast this is nearly H⁻¹; where what is left is
    mostly spread, directions that H determines badly hardly move.

    `own` are the coordinates that are rebuilt (others are shared layers). Clusters that nobody chose stay as they were. It computes
    with what a client has anyway, so nothing else is sent. It damps; it does not undo: where it comes to rest, S = H Θ as without.
    """
    chosen, shown = counts.any(0), counts.any(1)
    h = counts[np.ix_(shown, chosen)]
    rest = sums[shown] - h @ last[chosen]  # R
    seen = rest[:, own] @ rest[:, own].T
    spread = shown_together(counts, pairing)[np.ix_(shown, shown)]
    alike = np.outer(h.sum(1), h.sum(1))
    ratios, common = (grid.ravel()[:, None, None] for grid in np.meshgrid(RATIOS, COMMON))
    steps = h @ h.T + common * alike
    expected = steps + (ratios + _RANK) * spread  # [candidates, ., .]
    signs, volumes = np.linalg.slogdet(expected)
    inverses = np.linalg.pinv(expected, hermitian=True)
    fits = np.einsum("nab,ba->n", inverses, seen)
    worth = np.where((signs > 0) & (fits > 0), volumes + len(h) * np.log(np.maximum(fits, 1e-300)), np.inf)
    best = int(worth.argmin())
    prior = np.eye(int(chosen.sum())) + float(common[best, 0, 0])
    models: Matrix = last.copy()
    models[chosen] += prior @ h.T @ inverses[best] @ rest
    return models


def condition(counts: Matrix) -> float:
    """cond(H) over the clusters that somebody chose."""
    chosen = counts[:, counts.any(0)]
    return float(np.linalg.cond(chosen)) if chosen.size else math.inf


def noise_gain(counts: Matrix, pairing: float) -> float:
    """By how much rebuilding magnifies what members of a cluster differ by, at worst; a plain average of them has 1.

    Let members differ from their cluster's model by s, and A[a, i] = 1 where client i showed a. The rebuilt model of b is off by
    s · ‖(H⁻¹ A)_b‖, where the average over its n_b members would be off by s / √n_b. A is the server's and H the clients', so
    A Aᵀ, of which the norm is made, is taken as H and the way in which sets are drawn let expect it (`shown_together`).
    """
    inverse = _inverse(counts)
    squares = np.einsum("ba,ac,bc->b", inverse, shown_together(counts, pairing), inverse)
    return float(np.sqrt(np.diag(counts) * np.maximum(squares, 0.0)).max(initial=0.0))


def shown_together(counts: Matrix, pairing: float) -> Matrix:
    """A Aᵀ: how many clients showed both a and c, as expected from H.

    Clients of a that showed c, and of c that showed a, H has. Clients of a third cluster b showed each of the two as false ones in
    shares that H has as well, and both in the product of the shares times `pairing`: see `identity_math.pairing`.
    """
    members = np.maximum(np.diag(counts), 1.0)
    false = counts - np.diag(np.diag(counts))
    both = counts + counts.T + pairing * (false / members) @ false.T
    np.fill_diagonal(both, counts.sum(1))
    return both


def _inverse(counts: Matrix) -> Matrix:
    """H⁻¹, or where H is singular its pseudo-inverse; rows of clusters that nobody chose are zero."""
    return np.linalg.pinv(counts, rcond=_RANK).astype(np.float64)


def rebuild_models(models: Tensor, known: list[bool], setting: Setting, mean: Tensor | None = None) -> Rebuilt:
    """On the setting's device, cut into rows once for all clients of a host; `mean` fills the shared layers."""
    stack = models.to(setting.start.device)
    shared = None if mean is None else mean.to(stack)
    if shared is not None:
        stack = torch.where(setting.personal, stack, shared)
    return Rebuilt(stack, list(stack.unbind(0)), known, shared)


def fill_gaps(newest: Rebuilt, older: Iterable[Rebuilt], setting: Setting) -> Rebuilt:
    """What the newest sums do not determine, from the newest of the older ones that do; those are opened only if need be."""
    models, known = newest.models, list(newest.known)
    past = iter(older)
    while not all(known) and (before := next(past, None)) is not None:
        gains = torch.tensor([old and not new for new, old in zip(known, before.known)], device=models.device)
        rows = before.models if newest.shared is None else torch.where(setting.personal, before.models, newest.shared)
        models = torch.where(gains[:, None], rows, models)
        known = [new or old for new, old in zip(known, before.known)]
    return newest if models is newest.models else Rebuilt(models, list(models.unbind(0)), known, newest.shared)


def steadied(
    me: Client, mark: bytes, newest: Rebuilt, counts: Matrix, drawn: Callable[[Matrix, int], Matrix]
) -> Generator[Work, Any, Rebuilt]:
    """`newest`, `drawn` towards what this client knew before these sums, which `mark` names: it may be asked of them twice.

    `drawn` is given those last models and the number of sums that this client has seen, these included.

    Clients that know the same models before know the same after, and compute them once a host. One that was away starts from
    older models, and its own may then differ a little from the others'.
    """
    before, seen = yield Compute("steady", _known_before, (me, mark), alike=True)
    arguments = (before, seen, newest, drawn, me.setting)
    common, others_seen, models = yield Compute("steady", _steadied, arguments, shared=True)
    if others_seen != seen or not all(a is b or torch.equal(a, b) for a, b in zip(common, before)):
        *_, models = _steadied(*arguments)
    chosen = [bool(column.any()) for column in counts.T]
    return Rebuilt(models, list(models.unbind(0)), chosen, newest.shared)


def _known_before(me: Client, mark: bytes) -> tuple[list[Tensor], int]:
    if me.memory.get("mark") != mark:
        last = me.memory.get("models") or list(me.setting.start.unbind(0))
        me.memory |= {"mark": mark, "before": last, "seen": me.memory.get("seen", 0) + 1}
    return me.memory["before"], me.memory.get("seen", 1)


def _steadied(
    before: list[Tensor], seen: int, newest: Rebuilt, drawn: Callable[[Matrix, int], Matrix], setting: Setting
) -> tuple[list[Tensor], int, Tensor]:
    last = torch.stack([row.cpu() for row in before]).numpy().astype(np.float64)
    models = drawn(last, seen)
    stack = torch.from_numpy(models.astype(np.float32)).to(newest.models.device)
    return before, seen, stack if newest.shared is None else torch.where(setting.personal, stack, newest.shared)


def recall(me: Client, rebuilt: Rebuilt) -> Generator[Work, Any, Tensor]:
    """All k models [k, d]: those rebuilt, and for the others the last that this client knew, at first the agreed start.

    Every client remembers k models, as it would in a deployment. In a simulation these are references to the rows that the
    clients of a host share, so that memory and checkpoints hold them once; a client that was away falls back to older ones.
    """
    rows = yield Compute("keep", _remembered, (me, rebuilt), alike=True)
    if all(rebuilt.known):
        return rebuilt.models
    # Most clients remember the same rows: those share one stack, which the machine then evaluates in one go.
    common, stack = yield Compute("keep", _stack, (rows,), shared=True)
    return stack if all(a is b for a, b in zip(common, rows)) else torch.stack(rows)


def _remembered(me: Client, rebuilt: Rebuilt) -> list[Tensor]:
    last = me.memory.get("models") or me.setting.start.unbind(0)

    def kept(old: Tensor) -> Tensor:
        old = old.to(rebuilt.models.device)
        return old if rebuilt.shared is None else torch.where(me.setting.personal, old, rebuilt.shared)

    rows = [new if known else kept(old) for new, old, known in zip(rebuilt.rows, last, rebuilt.known)]
    me.memory["models"] = rows
    return rows


def _stack(rows: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    return rows, torch.stack(rows)
