#!/bin/bash
# What one GPU can tell in about three minutes: steps, rounds, a million clients, the GPU tests. Run from the repository's root; goes on past failures.
export PYTHONPATH=src:benchmarks OMP_WAIT_POLICY=passive
OUT=${OUT:-.}
timeout 150 python benchmarks/probe_gpu.py --minutes 1.6 > "$OUT/probe.txt" 2>&1
timeout 60 python benchmarks/bench_rounds.py --json "$OUT/rounds.json" > "$OUT/rounds.txt" 2>&1
timeout 40 python benchmarks/bench_million.py --device cuda --bare --sizes 1000,10000,100000 > "$OUT/million.txt" 2>&1
timeout 60 python -m pytest -n 0 -q -m gpu tests/learn tests/engines tests/algorithms/test_averaging.py > "$OUT/gpu_tests.txt" 2>&1
DATA=${COVEY_DATA:-shared/data}
if [ -f "$DATA/mnist.npz" ]; then
  { time COVEY_DATA=$DATA timeout 40 python -m covey run ifca-mnist --set engine.device=cuda --out /tmp/probe-ifca-mnist; } > "$OUT/ifca_mnist.txt" 2>&1
fi
tail -n 3 "$OUT"/*.txt
