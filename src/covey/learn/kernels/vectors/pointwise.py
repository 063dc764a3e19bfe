"""Arithmetic on vectors, number by number, in one pass over a GPU's memory, however many operations it has.

torch reads and writes the vectors once for each operation. Here the function runs once with terms in place of its vectors and
numbers, which write down what is done to them as CUDA; torch's jiterator compiles that. Every operation rounds by itself, as torch
has it, so the results are the same to the bit: the first of every function are compared, and one that differs, or that does
what terms cannot write down, stays torch's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

MOST = 8  # vectors that go in, and that come out
SIGNS = {"add": "+", "sub": "-", "mul": "*"}


class NotWritten(Exception):
    """A function does what terms cannot write down."""


class Term:
    """A float of a vector, or a number that is the same for all of them, which Python has in double precision."""

    def __init__(self, text: str, is_number: bool = False, is_given: bool = False) -> None:
        self.text, self.is_number, self.is_given = text, is_number, is_given

    def __add__(self, other: Any) -> Term:
        return _combined("add", self, other)

    def __radd__(self, other: Any) -> Term:
        return _combined("add", other, self)

    def __sub__(self, other: Any) -> Term:
        return _combined("sub", self, other)

    def __rsub__(self, other: Any) -> Term:
        return _combined("sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return _combined("mul", self, other)

    def __rmul__(self, other: Any) -> Term:
        return _combined("mul", other, self)

    def __neg__(self) -> Term:
        return Term(f"(-{self.text})", self.is_number)

    def add_(self, other: Any) -> Term:
        return self._become("add", other)

    def sub_(self, other: Any) -> Term:
        return self._become("sub", other)

    def mul_(self, other: Any) -> Term:
        return self._become("mul", other)

    def _become(self, operation: str, other: Any) -> Term:
        if self.is_given or self.is_number:
            raise NotWritten("it writes to a vector that it was given")
        self.text = _combined(operation, self, other).text
        return self

    def __getattr__(self, name: str) -> Any:
        raise NotWritten(name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Term:
        operation = getattr(function, "__name__", "")
        if operation == "neg" and len(arguments) == 1 and not named:
            negative: Term = -arguments[0]
            return negative
        if operation in SIGNS and len(arguments) == 2 and not named:
            return _combined(operation, *arguments)
        raise NotWritten(operation)


def _combined(operation: str, one: Any, other: Any) -> Term:
    first, second = _term(one), _term(other)
    if first.is_number and second.is_number:
        return Term(f"({first.text} {SIGNS[operation]} {second.text})", is_number=True)
    return Term(f"__f{operation}_rn({_as_float(first)}, {_as_float(second)})")


def _term(value: Any) -> Term:
    if isinstance(value, Term):
        return value
    if isinstance(value, int | float):
        return Term(repr(float(value)), is_number=True)
    raise NotWritten(f"a {type(value).__name__}")


def _as_float(term: Term) -> str:
    return f"float({term.text})" if term.is_number else term.text


@dataclass(frozen=True)
class Written:
    """A function as CUDA: `results` of one place in the vectors v0, v1, … and of the numbers n0, n1, …"""

    vectors: int
    numbers: int
    results: tuple[str, ...]
    is_tuple: bool

    @property
    def code(self) -> str:
        parameters = [f"T v{i}" for i in range(self.vectors)]
        parameters += [f"double n{i}" for i in range(self.numbers)]
        parameters += [f"T& r{i}" for i in range(len(self.results))]
        body = " ".join(f"r{i} = {result};" for i, result in enumerate(self.results))
        name = f"pointwise_{crc32(body.encode()):08x}"  # torch keeps what it has compiled by name
        return f"template <typename T> void {name}({', '.join(parameters)}) {{ {body} }}"


def written(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Written:
    """The function of arguments like these; NotWritten where it cannot be."""
    vectors = numbers = 0
    given = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            given.append(Term(f"v{vectors}", is_given=True))
            vectors += 1
        else:
            given.append(Term(f"n{numbers}", is_number=True))
            numbers += 1
    try:
        results = function(*given)
    except NotWritten:
        raise
    except Exception as error:  # of code that is not made for terms
        raise NotWritten(str(error)) from error
    every = results if isinstance(results, tuple) else (results,)
    if not 0 < vectors <= MOST or len(every) > MOST or not all(isinstance(r, Term) and not r.is_number for r in every):
        raise NotWritten("its results are no vectors, or too many")
    return Written(vectors, numbers, tuple(r.text for r in every), isinstance(results, tuple))


def is_fixed(function: Any) -> bool:
    """Whether what it computes follows from its text and arguments alone, as far as can be seen: no method, nothing captured, no
    global but modules, functions and classes.
    """
    if isinstance(function, BuiltinFunctionType):
        return getattr(function, "__self__", None) is None or isinstance(function.__self__, ModuleType | type)
    if (
        not isinstance(function, FunctionType)
        or function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
    ):
        return False
    used = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
    return all(
        isinstance(one, ModuleType | type)
        or one is function
        or (isinstance(one, FunctionType | BuiltinFunctionType) and is_fixed(one))
        for one in used
    )


class Pointwise:
    """The functions that were compiled, by what they are given."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Callable[..., Any] | None] = {}  # None: torch's own

    def __call__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """What the function gives of vectors on one GPU."""
        if not is_fixed(function):
            return function(*arguments)
        key = (getattr(function, "__code__", function), tuple(isinstance(argument, Tensor) for argument in arguments))
        if key not in self._known:
            self._known[key], results = _tried(function, arguments)
            return results
        compiled = self._known[key]
        return function(*arguments) if compiled is None else compiled(arguments)


def _tried(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Callable[..., Any] | None, Any]:
    """The function compiled, or None, and what it gives of these arguments."""
    expected = function(*arguments)
    try:
        compiled = _compiled(written(function, arguments))
        results = compiled(arguments)
        pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
        same = all(torch.equal(a, b) for a, b in pairs)
    except NotWritten:
        return None, expected
    except Exception as error:  # this torch, or its compiler, may have no such thing
        warnings.warn(f"no kernel of its own for arithmetic on vectors, which takes longer: {error}", stacklevel=2)
        return None, expected
    return (compiled if same else None), expected


def _compiled(one: Written) -> Callable[[tuple[Any, ...]], Any]:
    names = [f"n{i}" for i in range(one.numbers)]
    kernel: Any = torch.cuda.jiterator._create_multi_output_jit_fn(
        one.code, len(one.results), **dict.fromkeys(names, 0.0)
    )

    def run(arguments: tuple[Any, ...]) -> Any:
        numbers = (float(argument) for argument in arguments if not isinstance(argument, Tensor))
        results = kernel(*(a for a in arguments if isinstance(a, Tensor)), **dict(zip(names, numbers)))
        return tuple(results) if one.is_tuple and not isinstance(results, Tensor) else results

    return run
