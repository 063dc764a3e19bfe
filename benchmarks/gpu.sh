#!/bin/bash
# All GPU figures of docs/benchmarks.md in about three minutes, packed into $OUT/gpu.tar.gz (default: here). Run from the repository's
# root; goes on past failures.
export PYTHONPATH=src:benchmarks:$PYTHONPATH OMP_WAIT_POLICY=passive
FINAL=${OUT:-.}
OUT=$(mktemp -d)
trap 'tar -czf "$FINAL/gpu.tar.gz" -C "$OUT" .' EXIT
BEGIN=$SECONDS
left() { echo $(( ${SECONDS_IN_ALL:-200} - SECONDS + BEGIN > 5 ? ${SECONDS_IN_ALL:-200} - SECONDS + BEGIN : 5 )); }
timeout 50 python -m pytest -n 0 -q -m gpu tests/learn tests/engines/test_cohort.py tests/algorithms/test_averaging.py > "$OUT/gpu_tests.txt" 2>&1
tail -n 2 "$OUT/gpu_tests.txt"
timeout 60 python benchmarks/probe_gpu.py --minutes 0.7 --best "$OUT/tile.txt" > "$OUT/probe.txt" 2>&1
grep -h "two kernels\|best\|Machine.train_bundle\|== round" "$OUT/probe.txt"
TILE=$(cat "$OUT/tile.txt" 2>/dev/null)
timeout "$(left)" python benchmarks/bench_rounds.py ${TILE:+--tile $TILE} --json "$OUT/rounds-h200.json" > "$OUT/rounds-h200.txt" 2>&1
cat "$OUT/rounds-h200.txt"
timeout "$(left)" python benchmarks/bench_training_gpu.py --models fcnn ${TILE:+--tile $TILE} --json "$OUT/training-gpu-fcnn.json" > "$OUT/training-gpu-fcnn.txt" 2>&1
tail -n 8 "$OUT/training-gpu-fcnn.txt"
timeout "$(left)" python benchmarks/bench_million.py --device cuda --sizes 10000,1000000 --json "$OUT/million-h200.json" > "$OUT/million-h200.txt" 2>&1
cat "$OUT/million-h200.txt"
DATA=${COVEY_DATA:-shared/data}
if [ -f "$DATA/mnist.npz" ]; then
  { time COVEY_DATA=$DATA timeout 40 python -m covey run ifca-mnist --set engine.device=cuda --out "$(mktemp -d)/run"; } > "$OUT/ifca_mnist.txt" 2>&1
  tail -n 12 "$OUT/ifca_mnist.txt"
fi
timeout "$(left)" python benchmarks/bench_training_gpu.py --models cnn,resnet18 --json "$OUT/training-gpu-others.json" > "$OUT/training-gpu-others.txt" 2>&1
tail -n 12 "$OUT/training-gpu-others.txt"
