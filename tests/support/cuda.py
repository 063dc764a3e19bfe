"""CUDA kernels on a CPU, for tests where there is no GPU: a block is as many threads, which wait for each other where the kernel
says so. Slow: for a few blocks. It shows that the sums are right, not that a GPU's compiler or memory would agree.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from torch import Tensor

SHIM = """
#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
using std::min;
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct Index { int x; };
static thread_local Index threadIdx, blockIdx;

static std::barrier<> *together;
#define __syncthreads() together->arrive_and_wait()
"""
LAUNCH = """
template <class... A> static void launch(void (*kernel)(A...), int blocks, A... given) {
  for (int block = 0; block < blocks; block++) {
    std::barrier<> all(THREADS);
    together = &all;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < THREADS; thread++)
      threads.emplace_back([=, &all] {
        threadIdx = {thread};
        blockIdx = {block};
        kernel(given...);
        all.arrive_and_drop();
      });
    for (auto &one : threads) one.join();
  }
}
extern "C" void run(int blocks, %(typed)s) { launch(%(name)s, blocks, %(plain)s); }
"""


def has_compiler() -> bool:
    return shutil.which("g++") is not None


def compiled(source: str, name: str, kinds: str, folder: Path) -> Any:
    """A function like torch's of a compiled kernel. `kinds`: a letter for each argument, as p (floats), b (bytes), l (whole numbers
    of 64 bits), i (a number).
    """
    types = {"p": "float *", "b": "unsigned char *", "l": "long long *", "i": "int "}
    typed = ", ".join(f"{types[kind]}a{n}" for n, kind in enumerate(kinds))
    plain = ", ".join(f"a{n}" for n in range(len(kinds)))
    # Kernels read through const pointers: the template wants one type for both sides.
    text = SHIM + source.replace("const float *x", "float *x").replace("const float *w", "float *w")
    for one in ("float *b,", "float *delta,", "unsigned char *code,", "unsigned char *text,", "long long *numbers,"):
        text = text.replace(f"const {one}", one)
    text += LAUNCH % {"typed": typed, "name": name, "plain": plain}
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path.with_suffix(".cpp").write_text(text)
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-o", f"{path}.so", f"{path}.cpp"],
        check=True,
    )
    run = ctypes.CDLL(f"{path}.so").run

    def kernel(grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Tensor | int]) -> None:
        run(grid[0], *(ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else ctypes.c_int(a) for a in args))

    return kernel
