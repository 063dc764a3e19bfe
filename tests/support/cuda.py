"""CUDA kernels on a CPU, for tests where there is no GPU: the threads of a block take turns, each until the kernel says that
they wait for each other. For a few blocks. It shows that the sums are right, not that a GPU's compiler or memory would agree.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from torch import Tensor

# Turns, not threads of the system: hundreds of those wait milliseconds for each other at each barrier.
SHIM = """
#include <algorithm>
#include <cmath>
#include <memory>
#include <ucontext.h>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
using std::min;
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct Index { int x; };
static Index threadIdx, blockIdx;

struct Barrier {
  int expected = 0, arrived = 0, round = 0;
  void pass() { if (arrived == expected) arrived = 0, round++; }
};
struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};
static std::vector<Thread> threads;
static Barrier block, warps[32];
static ucontext_t outside;

static void turn() {
  const int now = threadIdx.x, count = threads.size();
  int next = (now + 1) % count;
  while (next != now && threads[next].done) next = (next + 1) % count;
  threadIdx.x = next;
  if (next != now) swapcontext(&threads[now].context, threads[next].done ? &outside : &threads[next].context);
  else if (threads[now].done) setcontext(&outside);
}
static void wait(Barrier &at) {
  const int round = at.round;
  at.arrived++;
  at.pass();
  while (at.round == round) turn();
}
#define __syncthreads() wait(block)
static float exchanged[1024];
static float __shfl_xor_sync(unsigned, float value, int lane) {
  Barrier &warp = warps[threadIdx.x / 32];
  exchanged[threadIdx.x] = value;
  wait(warp);
  const float got = exchanged[threadIdx.x ^ lane];
  wait(warp);
  return got;
}
"""
LAUNCH = """
template <class... A, class... B> static void launch(void (*kernel)(A...), int blocks, B... given) {
  static void (*body)();
  static void *called;
  auto all = [&] { kernel(given...); };
  called = &all;
  body = [] {
    (*(decltype(all) *)called)();
    threads[threadIdx.x].done = true;
    for (Barrier *one : {&block, &warps[threadIdx.x / 32]}) {
      one->expected--;
      if (one->arrived) one->pass();
    }
    turn();
  };
  for (int at = 0; at < blocks; at++) {
    blockIdx = {at};
    block = Barrier{THREADS};
    threads = std::vector<Thread>(THREADS);
    for (int warp = 0; warp < 32; warp++) warps[warp] = Barrier{std::max(0, std::min(32, THREADS - 32 * warp))};
    for (auto &one : threads) {
      one.stack.reset(new char[1 << 17]);
      getcontext(&one.context);
      one.context.uc_stack.ss_sp = one.stack.get();
      one.context.uc_stack.ss_size = 1 << 17;
      makecontext(&one.context, body, 0);
    }
    threadIdx = {0};
    swapcontext(&outside, &threads[0].context);
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
    text = SHIM + source + LAUNCH % {"typed": typed, "name": name, "plain": plain}
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path.with_suffix(".cpp").write_text(text)
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-o", f"{path}.so", f"{path}.cpp"],
        check=True,
    )
    run = ctypes.CDLL(f"{path}.so").run

    def kernel(grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Tensor | int]) -> None:
        run(grid[0], *(ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else ctypes.c_int(a) for a in args))

    return kernel
