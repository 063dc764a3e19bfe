"""Vectors of clients that are not computed before somebody looks at them: a GPU is spared passes over its memory.

Whoever only adds a `Pending` vector up over clients (`summed`) takes one pass (`passes`), in which those results of the same
function that are kept are written, too. Every number is rounded as torch has it; sums are float64, in an order of their own: they
differ by 1e-15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from covey.learn.kernels.products import takes_triton
from covey.learn.kernels.vectors.doubts import answer
from covey.learn.kernels.vectors.passes import Pass
from covey.learn.kernels.vectors.pointwise import NotWritten, Pointwise, is_fixed, written

IN_ONE_PASS = Pointwise()
DIFFERENCE, NEGATIVE = "__fsub_rn(v0, v1)", "(-v0)"  # texts of results
_READERS: Any = WeakTensorKeyDictionary()  # vectors -> a reference to what is put off and reads them


class Pending(Tensor):
    """A vector of each client, [n, d], that is computed when somebody looks at it. Shape, type and device tell nothing."""

    _of: PutOff | None
    _place: int
    _value: Tensor | None

    @staticmethod
    def __new__(cls, of: PutOff, place: int) -> Pending:
        n, d, device = of.shape
        made: Pending = Tensor._make_wrapper_subclass(cls, (n, d), dtype=torch.float32, device=device)  # type: ignore[attr-defined]
        made._of, made._place, made._value = of, place, None
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        given, named = tree_map_only(Pending, Pending.value, (args, kwargs or {}))
        return func(*given, **named)

    # What torch answers without dispatching: it has no numbers of its own.

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        return self.value().numpy(force=force)

    def tolist(self) -> Any:
        return self.value().tolist()

    def data_ptr(self) -> int:
        return self.value().data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.value().untyped_storage()

    def __dlpack__(self, **how: Any) -> Any:
        return self.value().__dlpack__(**how)

    def __deepcopy__(self, known: dict[int, Any]) -> Tensor:
        return deepcopy(self.value(), known)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.value().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def keep(self) -> None:
        """It will be looked at: whoever passes over what it is computed from writes it."""
        if self._of is not None:
            self._of.kept.add(self._place)

    def value(self) -> Tensor:
        if self._value is None:
            assert self._of is not None
            self._become(self._of.values()[self._place])
        assert self._value is not None
        return self._value

    def _become(self, value: Tensor) -> None:
        self._value, self._of = value, None  # what it was computed from may go

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Pending({'not computed' if self._value is None else self._value})"


def settled(vectors: Tensor) -> Tensor:
    return vectors.value() if isinstance(vectors, Pending) else vectors


def in_rows(vectors: Tensor, n: int) -> Tensor:
    """[n, d], pending or not; [d] and [1, d] are those of all n."""
    return vectors if isinstance(vectors, Pending) else vectors.expand(n, -1)


def cut(vectors: Tensor, start: int, stop: int) -> Tensor:
    """The rows of some clients; of all of them, what is pending stays so."""
    whole = isinstance(vectors, Pending) and start == 0 and stop >= len(vectors)
    return vectors if whole else vectors[start:stop]


def kept(vectors: Tensor, n: int) -> Tensor:
    """`in_rows` of what will be looked at."""
    if isinstance(vectors, Pending):
        vectors.keep()
    return in_rows(vectors, n)


def difference(vectors: Tensor) -> tuple[Tensor, Tensor | None]:
    """Two vectors [n, d] whose difference these are, where they are pending and nothing else; or these, and None."""
    if isinstance(vectors, Pending) and vectors._of is not None:
        one = vectors._of
        if one.text.results[vectors._place] == DIFFERENCE and len(one.arguments) == 2:
            minuend, subtrahend = (in_rows(argument, one.shape[0]) for argument in one.arguments)
            if minuend.shape == subtrahend.shape == one.shape[:2]:
                return minuend, subtrahend
    return settled(vectors), None


def less(vectors: Tensor, shared: Tensor) -> Tensor | None:
    """vectors + shared, pending as shared − v, where the vectors are pending and nothing but −v [n, d]; None: they are not."""
    if not isinstance(vectors, Pending) or vectors._of is None or shared.shape != (1, vectors.shape[1]):
        return None
    one = vectors._of
    if one.text.results[vectors._place] != NEGATIVE or len(one.arguments) != 1:
        return None
    later: Tensor | None = put_off(torch.sub, (shared, one.arguments[0]))
    return later


def waits(device: torch.device) -> bool:
    """Whether anything is put off there: without a kernel for the pass nothing would be spared."""
    return takes_triton(device)


def put_off(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What the function gives of vectors [n, d], [1, d] or [n, 1] and numbers, pending; None: it cannot be put off.

    Until then nobody may write to the vectors that it was given.
    """
    try:
        one = PutOff(function, arguments)
    except NotWritten:
        return None
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.shape == one.shape[:2]:
            _READERS[argument] = ref(one)
    results = tuple(Pending(one, place) for place in range(len(one.text.results)))
    one.results = [ref(result) for result in results]
    return results if one.text.is_tuple else results[0]


def summed(vectors: Tensor, weights: NDArray[np.float64]) -> Tensor | None:
    """The sum over clients, float64 [d], of vectors that are pending or that something pending reads, each times its client's
    weight. None: they are to be summed as they are.
    """
    if isinstance(vectors, Pending):
        return None if vectors._of is None else vectors._of.sum_of(vectors._place, weights)
    reader = _READERS.get(vectors)
    one = None if reader is None else reader()
    return None if one is None or not one.kept else one.sum_of(vectors, weights)


class PutOff:
    """A function of vectors that was asked for, and not yet computed."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if not is_fixed(function):
            raise NotWritten("what it computes may change")
        self.text = written(function, arguments)
        self._function, self.arguments = function, arguments
        self._vectors = [a for a in arguments if isinstance(a, Tensor)]
        n, d = (max(v.shape[axis] for v in self._vectors) for axis in (0, 1))
        if any(v.dtype != torch.float32 or (v.shape[1] > 1 and v.stride(1) != 1) for v in self._vectors):
            raise NotWritten("its numbers do not lie side by side")
        self.shape = (n, d, self._vectors[0].device)
        self.kept: set[int] = set()
        self.results: list[ReferenceType[Pending]] = []
        self._sums: dict[tuple[str, bytes], Tensor] = {}

    def values(self) -> tuple[Tensor, ...]:
        """All of them; those that nobody has any more are computed with the others."""
        given = IN_ONE_PASS if self.shape[2].type == "cuda" else lambda function, arguments: function(*arguments)
        values = given(self._function, self.arguments)
        values = values if isinstance(values, tuple) else (values,)
        whole = tuple(value.expand(self.shape[0], -1) for value in values)
        self._give(range(len(whole)), whole)
        return whole

    def _waiting(self, place: int) -> Pending | None:
        """The result at this place, if somebody has it and it is not computed."""
        pending = self.results[place]()
        return pending if pending is not None and pending._value is None else None

    def _give(self, places: Sequence[int], values: Sequence[Tensor]) -> None:
        for place, value in zip(places, values):
            if (pending := self._waiting(place)) is not None:
                pending._become(value)

    def sum_of(self, what: int | Tensor, weights: NDArray[np.float64]) -> Tensor | None:
        """Of a result, or of a vector that was given; None: there is no kernel for it."""
        if isinstance(what, int):
            texts = [text for place, text in enumerate(self.text.results) if place not in self.kept]
            wanted = self.text.results[what]
        else:
            wanted = next(f"v{i}" for i, vector in enumerate(self._vectors) if vector is what)
            texts = [wanted]
        if wanted not in texts:
            return None
        shares = weights.tobytes()
        if (wanted, shares) not in self._sums:
            kept = tuple(place for place in sorted(self.kept) if self._waiting(place) is not None)
            texts = list(dict.fromkeys(texts))
            passed = Pass(self._function, self.text, self.arguments, kept, tuple(texts), weights).run()
            if passed is None:
                return None
            self._give(kept, passed[0])
            for text, total in zip(texts, passed[1]):
                self._sums[text, shares] = total
                self._answer(text, total)
        return self._sums[wanted, shares]

    def _answer(self, text: str, total: Tensor) -> None:
        for i, vector in enumerate(self._vectors):
            if vector.shape == self.shape[:2] and re.search(rf"\bv{i}\b", text):
                answer(vector, total.sum)
