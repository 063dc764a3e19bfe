"""The kernels of `pooled.cu`, compiled for a layer when it is first computed, by the compiler that comes with torch for CUDA.

Why CUDA and not Triton, as everywhere else here: which thread holds which sums, and what stays in its registers, is all there is to
gain, and Triton chooses that itself. Layers of few channels alone; others are products of matrices (`convolve.py`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

Pair = tuple[int, int]
FEW = 32  # outputs, and channels, at most
SHARED = 48 * 1024  # bytes that a block may use without asking for more
IMAGES = 5  # that one block adds up: always the same, so that no sum depends on how many there are


@dataclass(frozen=True)
class Layer:
    """What the kernels are compiled for."""

    channels: int
    height: int
    width: int
    outputs: int
    kernel: Pair
    padding: Pair

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, padding: Pair) -> Layer:
        """For images […, C, H, W] and weights […, O, C, h, w]."""
        return cls(*x.shape[-3:], weight.shape[-4], (weight.shape[-2], weight.shape[-1]), padding)  # type: ignore[call-arg]

    @property
    def sides(self) -> Pair:
        """Of what comes out."""
        (kh, kw), (ph, pw) = self.kernel, self.padding
        return (self.height + 2 * ph - kh + 1) // 2, (self.width + 2 * pw - kw + 1) // 2

    @property
    def rows(self) -> int:
        """Of taps, each of which has a thread."""
        return self.outputs * self.channels * self.kernel[0]

    @property
    def groups(self) -> int:
        """Threads that share one row of taps."""
        return max(1, min(8, 512 // self.rows))

    @property
    def room(self) -> int:
        """Floats of memory that the threads share, beside an image."""
        places = self.sides[0] * self.sides[1]
        return max(2 * self.outputs * places, self.groups * self.rows * (self.kernel[1] + 1))

    @property
    def fits(self) -> bool:
        """Whether the kernels do it: few channels, and what a block shares is there."""
        if min(*self.sides, *self.kernel) < 1 or max(self.outputs, self.channels) > FEW or self.rows > 1024:
            return False
        (kh, kw), (ph, pw) = self.kernel, self.padding
        places, taps = self.sides[0] * self.sides[1], kh * kw
        wide = (self.width + 2 * pw + 30) // 32 * 32 + 1
        image = self.channels * ((self.height + 2 * ph) * wide + 31)  # at most, see pooled.cu
        shared = (
            self.channels * taps * _fours(self.outputs),
            image + self.room,
            self.outputs * taps * _fours(self.channels) + 2 * self.outputs * places,
        )
        return 4 * max(shared) <= SHARED and max(kh, kw) <= 7 and ph < kh and pw < kw

    @property
    def pairs(self) -> bool:
        return self.width % 2 == 0 and self.padding[1] % 2 == 0 and self.kernel[1] % 2 == 1

    def source(self, name: str, threads: int, keep: bool = True) -> str:
        """The text of the kernel of this name for it."""
        given = {
            f"ONLY_{name}": 1,
            "C": self.channels, "H": self.height, "W": self.width, "O": self.outputs, "KH": self.kernel[0],
            "KW": self.kernel[1], "PH": self.padding[0], "PW": self.padding[1], "PAIRS": int(self.pairs), "KEEP": int(keep),
            "THREADS": threads, "GROUPS": self.groups, "ROOM": self.room, "IMAGES": IMAGES,
        }  # fmt: skip
        return "".join(f"#define {name} {value}\n" for name, value in given.items()) + text()


@functools.cache
def text() -> str:
    return (files("covey.learn.kernels.convolutions") / "pooled.cu").read_text(encoding="utf-8")


@functools.cache
def compiled(layer: Layer, name: str, threads: int, keep: bool, device: int) -> Any:
    """A function to launch, on the device that is current."""
    return torch.cuda._compile_kernel(layer.source(name, threads, keep), name)  # type: ignore[attr-defined]


def outputs(x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, keep: bool = True) -> tuple[Tensor, Tensor]:
    """([c, B, O, …], the code of which of four was largest) of images [c, B, C, H, W], weights [c, O, C, h, w], biases [c, O]."""
    layer, threads = Layer.of(x, weight, padding), 128
    x, weight, (c, batch) = _rows(x), _rows(weight), x.shape[:2]
    y = x.new_empty(c, batch, layer.outputs, *layer.sides)
    code = torch.empty(y.shape if keep else (0,), dtype=torch.uint8, device=x.device)
    parts = -(-batch * layer.sides[0] * layer.sides[1] // threads)
    args = [x, weight, bias, y, code, parts, batch, x.stride(0), weight.stride(0), bias.stride(0)]
    _launch(layer, "outputs", threads, keep, c * parts, args)
    return y, code


def at_weights(delta: Tensor, code: Tensor, x: Tensor, shape: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
    """The gradients at weights [c, O, C, h, w] and biases [c, O]."""
    (c, batch, o), x = delta.shape[:3], _rows(x)
    layer = Layer(*x.shape[2:], o, shape, padding)  # type: ignore[call-arg]
    parts = -(-batch // IMAGES)
    dw = x.new_empty(c, parts, o, x.shape[2], *shape)
    db = x.new_empty(c, parts, o)
    threads = 32 * -(-layer.rows * layer.groups // 32)
    args = [delta.contiguous(), code, x, dw, db, parts, batch, x.stride(0)]
    _launch(layer, "at_weights", threads, True, c * parts, args)
    return dw.sum(1), db.sum(1)


def at_inputs(delta: Tensor, code: Tensor, weight: Tensor, sides: Pair, padding: Pair) -> Tensor:
    """The gradient at images of these sides [c, B, C, H, W]."""
    (c, batch, o), weight = delta.shape[:3], _rows(weight)
    layer = Layer(weight.shape[2], *sides, o, (weight.shape[3], weight.shape[4]), padding)
    dx = delta.new_empty(c, batch, weight.shape[2], *sides)
    threads = min(256, 32 * -(-sides[0] * sides[1] // 32))
    parts = -(-batch // IMAGES)
    args = [delta.contiguous(), code, weight, dx, parts, batch, weight.stride(0)]
    _launch(layer, "at_inputs", threads, True, c * parts, args)
    return dx


def _launch(layer: Layer, name: str, threads: int, keep: bool, blocks: int, args: list[Any]) -> None:
    with torch.cuda.device(args[0].device):
        kernel = compiled(layer, name, threads, keep, torch.cuda.current_device())
        kernel(grid=(blocks, 1, 1), block=(threads, 1, 1), args=args)


def _rows(tensor: Tensor) -> Tensor:
    """What a client has lies side by side, beginning at an even place; the clients' may lie apart, or be one."""
    plain = tensor[0].is_contiguous() and tensor.data_ptr() % 8 == 0 and (len(tensor) == 1 or tensor.stride(0) % 2 == 0)
    return tensor if plain else tensor.contiguous()


def _fours(count: int) -> int:
    return -(-count // 4) * 4
