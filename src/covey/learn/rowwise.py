"""Arithmetic on the vectors of many clients at once.

On a GPU a launch costs more than a client's vector, so equal requests are computed on stacks [n, d]; on a CPU one after another,
which keeps a vector in its caches, and where torch can write a result anywhere, into rows of one stack, which a training then takes
as it is. Rows of a stack keep the whole of it alive: what a client remembers is copied (`owned`).
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.learn.kernels.products import takes_triton
from covey.learn.kernels.vectors.doubts import answer
from covey.learn.kernels.vectors.pending import IN_ONE_PASS, put_off, settled, summed, waits
from covey.learn.schedule.transfer import there
from covey.learn.schedule.waves import stacked
from covey.learn.work import Compute

Signature = tuple[object, ...]
WRITES_ANYWHERE = frozenset({torch.add, torch.sub, torch.mul, torch.neg})  # take `out`, give a vector like their first


def by_rows(works: Sequence[Compute]) -> list[Any]:
    """The result of each request, in their order."""
    results: list[Any] = [None] * len(works)
    groups: dict[Signature, list[int]] = defaultdict(list)
    for i, work in enumerate(works):
        if _on_gpu(work) or work.function in WRITES_ANYWHERE:
            groups[_signature(work)].append(i)
        else:
            results[i] = work.function(*work.arguments)
    for members in groups.values():
        equal = [works[i] for i in members]
        for i, rows in zip(members, side_by_side(equal) if _on_gpu(equal[0]) else _one_by_one(equal)):
            results[i] = rows
    return results


def _one_by_one(works: Sequence[Compute]) -> list[Tensor]:
    """Equal requests for a function that writes anywhere: their results as rows of one stack, where their vectors are all alike."""
    kinds = {(a.shape, a.dtype) for a in works[0].arguments if isinstance(a, Tensor)}
    first, *others = works
    result = first.function(*first.arguments)
    alike = len(kinds) == 1 and (result.shape, result.dtype) in kinds  # half of a whole number is none
    if not others or not alike or result.requires_grad:
        return [result, *(work.function(*work.arguments) for work in others)]
    stack = result.new_empty(len(works), *result.shape)
    stack[0] = result
    for work, row in zip(others, stack[1:]):
        work.function(*work.arguments, out=row)
    return list(stack.unbind(0))


def side_by_side(works: Sequence[Compute]) -> list[Any]:
    """Equal requests as one: the function on stacks of their arguments, and its results row by row."""
    device = next(a.device for a in works[0].arguments if isinstance(a, Tensor))
    given = [_column(column, device) for column in zip(*(work.arguments for work in works))]
    stacks = works[0].function(*given)
    if isinstance(stacks, tuple):
        return list(zip(*(stack.expand(len(works), -1).unbind(0) for stack in stacks)))
    return list(stacks.expand(len(works), -1).unbind(0))


def on_cpu(works: Sequence[Compute]) -> list[tuple[Any, ...]]:
    """The arguments of each request, with the vectors that it reads on the CPU brought there: those of one shape in one copy, since
    a GPU that others use, too, lets each copy wait for its turn.
    """
    arguments = [work.arguments for work in works]
    if not any(work.on_cpu and _on_gpu(work) for work in works):
        return arguments
    moved = [list(given) for given in arguments]
    groups: dict[Signature, list[tuple[int, int]]] = defaultdict(list)
    for i, work in enumerate(works):
        for place, value in enumerate(work.arguments if work.on_cpu else ()):
            if isinstance(value, Tensor) and value.is_cuda:
                groups[value.shape, value.dtype, value.device].append((i, place))
    for places in groups.values():
        rows = _fetched(torch.stack([arguments[i][place] for i, place in places]))
        for (i, place), row in zip(places, rows):
            moved[i][place] = row
    return [tuple(given) for given in moved]


def _fetched(rows: Tensor) -> Tensor:
    """On the CPU, in memory that a GPU writes to by itself and that torch uses again: fresh pages for a hundred models cost more
    than the copy.
    """
    return torch.empty(rows.shape, dtype=rows.dtype, pin_memory=rows.is_cuda).copy_(rows)


def on_rows(
    work: Compute, device: torch.device, timed: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Any:
    """A request of clients that run as one: vectors [n, d], or [d] where they share one; numbers as arrays [n], or one for all.

    `timed`: takes the time of what is computed now. What is put off takes none, and a GPU's marks for it would cost the host some.
    """
    given = [_as_rows(argument, device) for argument in work.arguments]
    on_gpu = device.type == "cuda" and all(one.dtype == torch.float32 for one in given if isinstance(one, Tensor))
    alone = all(len(one) == 1 for one in given if isinstance(one, Tensor))
    if work.may_wait and not alone and waits(device):
        later = put_off(work.function, tuple(given))
        if later is not None:
            return later
    with timed():
        stacks = IN_ONE_PASS(work.function, tuple(given)) if on_gpu else work.function(*given)
    if isinstance(stacks, tuple):
        return tuple(stack[0] for stack in stacks) if alone else stacks
    return stacks[0] if alone else stacks


def _as_rows(argument: Any, device: torch.device) -> Any:
    if isinstance(argument, Tensor):
        return settled(argument)[None] if argument.dim() == 1 else settled(argument)
    if isinstance(argument, np.ndarray):
        return torch.from_numpy(argument.astype(np.float32)).to(device)[:, None]
    return argument


def add_to_groups(
    sums: Tensor, models: Tensor, groups: NDArray[np.int64], weights: NDArray[np.float64], room: int
) -> None:
    """sums [k, d], in float64, += the rows of models [n, d] times their weights, each to its group. `room`: rows that may be copied
    to float64 at a time, where that must be.
    """
    if (groups == groups[0]).all() and (whole := summed(models, weights)) is not None:
        sums[int(groups[0])] += whole
        return
    models = settled(models)
    _add_rows(sums, models, groups, weights, room)
    answer(models, sums.sum)


def _add_rows(sums: Tensor, models: Tensor, groups: NDArray[np.int64], weights: NDArray[np.float64], room: int) -> None:
    kernel = _sums_kernel(sums.device)
    if kernel is not None and models.dtype == torch.float32 and models.stride(1) == 1:
        table = _table(groups.tobytes(), weights.tobytes(), len(sums), sums.device)
        n, k = len(models), len(sums)
        kernel.add(sums, models, table[:n], table[n + k + 1 :].view(torch.float64), table[n : n + k + 1])
        return
    shares = torch.zeros(len(sums), len(models), dtype=sums.dtype)
    shares[torch.from_numpy(groups), torch.arange(len(models))] = torch.from_numpy(weights)
    parts = torch.split(shares.to(sums.device), room, dim=1)
    for part, share in zip(torch.split(models, room), parts):
        sums.addmm_(share, part.to(sums.dtype))


@functools.lru_cache(maxsize=8)
def _table(groups: bytes, weights: bytes, k: int, device: torch.device) -> Tensor:
    """Who is in which group, in order, where each group begins, and their weights; from round to round mostly the same."""
    of, share = np.frombuffer(groups, np.int64), np.frombuffer(weights, np.float64)
    order = np.argsort(of, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=k))])
    return there(torch.from_numpy(np.concatenate([order, starts, share[order].view(np.int64)])), device)


@functools.cache
def _sums_kernel(device: torch.device) -> Any:
    """The Triton kernel, tried once; None: there is none here."""
    if not takes_triton(device):
        return None
    try:
        from covey.learn.kernels.vectors import sums as kernel

        tried = torch.zeros(2, 3, dtype=torch.float64, device=device)
        order, starts = torch.arange(2, device=device), torch.tensor([0, 1, 2], device=device)
        kernel.add(tried, torch.ones(2, 3, device=device), order, tried.new_ones(2), starts)
        return kernel if bool((tried == 1).all()) else None
    except Exception as error:  # Triton has many of its own
        warnings.warn(f"no kernel for sums of models here, averages take longer without: {error}", stacklevel=2)
        return None


def owned(memories: Sequence[dict[str, Any]]) -> None:
    """Gives every vector in these memories, in place, memory of its own: one row that is kept must not keep all others."""
    shared = [
        (memory, name, value)
        for memory in memories
        for name, value in memory.items()
        if isinstance(value, Tensor) and value.untyped_storage().nbytes() > value.nbytes
    ]
    if shared:
        rows = [torch.empty_like(value, memory_format=torch.contiguous_format) for _, _, value in shared]
        torch._foreach_copy_(rows, [value for _, _, value in shared])
        for (memory, name, _), row in zip(shared, rows):
            memory[name] = row


def _column(values: Sequence[Tensor | float], device: torch.device) -> Tensor:
    """[n, d] of vectors, [1, d] where all clients have the same; [n, 1] of numbers."""
    if isinstance(values[0], Tensor):
        return stacked([v for v in values if isinstance(v, Tensor)], device)
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]


def _on_gpu(work: Compute) -> bool:
    return any([isinstance(argument, Tensor) and argument.is_cuda for argument in work.arguments])  # noqa: C419 - faster


def _signature(work: Compute) -> Signature:
    shapes = tuple((a.shape, a.dtype) if isinstance(a, Tensor) else None for a in work.arguments)
    return (work.function, *shapes)
