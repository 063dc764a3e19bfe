#!/bin/bash
# All GPU figures of docs/benchmarks.md in about three minutes, packed into $OUT/gpu.tar.gz (default: here). Run from the repository's
# root; goes on past failures; `benchmarks/store_gpu.py` stores them. Compiled Python is kept for the next process, as every installation does.
export PYTHONPATH=src:benchmarks:$PYTHONPATH OMP_WAIT_POLICY=passive
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$(mktemp -d)
FINAL=${OUT:-.}
OUT=$(mktemp -d)
trap 'tar -czf "$FINAL/gpu.tar.gz" -C "$OUT" .' EXIT
BEGIN=$SECONDS
left() { echo $(( ${SECONDS_IN_ALL:-200} - SECONDS + BEGIN > 5 ? ${SECONDS_IN_ALL:-200} - SECONDS + BEGIN : 5 )); }
passed() { echo "[$1: $((SECONDS - BEGIN)) s]"; }
DATA=${COVEY_DATA:-shared/data}
timeout 70 python benchmarks/bench_rounds.py --json "$OUT/rounds-h200.json" > "$OUT/rounds-h200.txt" 2>&1
cat "$OUT/rounds-h200.txt"
passed rounds
timeout "$(left)" python benchmarks/bench_training_gpu.py --models fcnn --json "$OUT/training-gpu-fcnn.json" > "$OUT/training-gpu-fcnn.txt" 2>&1
tail -n 8 "$OUT/training-gpu-fcnn.txt"
passed fcnn
if [ -f "$DATA/mnist.npz" ]; then
  COVEY_DATA=$DATA timeout "$(left)" python benchmarks/bench_start.py --json "$OUT/start-h200.json" > "$OUT/start-h200.txt" 2>&1
  tail -n 5 "$OUT/start-h200.txt"
fi
passed ifca-mnist
timeout 25 python -m pytest -n 0 -q -m gpu tests/engines/test_cohort.py tests/algorithms/test_averaging.py tests/metrics/test_metrics.py > "$OUT/gpu_tests_rounds.txt" 2>&1
tail -n 2 "$OUT/gpu_tests_rounds.txt"
passed "tests of rounds"
timeout "$(left)" python benchmarks/bench_million.py --device cuda --sizes 10000,1000000 --json "$OUT/million-h200.json" > "$OUT/million-h200.txt" 2>&1
cat "$OUT/million-h200.txt"
passed million
timeout "$(left)" python benchmarks/bench_training_gpu.py --models cnn,resnet18 --json "$OUT/training-gpu-others.json" > "$OUT/training-gpu-others.txt" 2>&1
tail -n 12 "$OUT/training-gpu-others.txt"
passed others
timeout "$(left)" python benchmarks/probe_gpu.py --minutes 0.4 --without-tiles 2>&1 | sed "s#$PWD/##g" > "$OUT/probe-h200.txt"
grep -h "two kernels\|Machine.train_bundle\|== round" "$OUT/probe-h200.txt"
passed probe
timeout "$(left)" python -m pytest -n 0 -q -m gpu tests/learn > "$OUT/gpu_tests.txt" 2>&1
tail -n 2 "$OUT/gpu_tests.txt"
passed tests
