#!/bin/bash
# All GPU figures of docs/benchmarks.md in about three minutes, packed into $OUT/gpu.tar.gz (default: here). Run from the repository's
# root; goes on past failures; `benchmarks/store_gpu.py` stores them. Compiled Python is kept for the next process, as every installation
# does. PARTS: some of them, in the order given. Tests run side by side, 45 seconds at most, when no timing is under way.
PARTS=${PARTS:-rounds leftovers tests cnn resnet fcnn start million probe arithmetic gru cnn_bf16 resnet_exact}
export PYTHONPATH=src:benchmarks:$PYTHONPATH OMP_WAIT_POLICY=passive
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$(mktemp -d)
FINAL=${OUT:-.}
OUT=$(mktemp -d)
trap 'tar -czf "$FINAL/gpu.tar.gz" -C "$OUT" .' EXIT
BEGIN=$SECONDS
ALL=${SECONDS_IN_ALL:-220}
left() { echo $(( ALL - SECONDS + BEGIN > 5 ? ALL - SECONDS + BEGIN : 5 )); }
at_most() { echo $(( $(left) < $1 ? $(left) : $1 )); }
export COVEY_DATA=${COVEY_DATA:-shared/data}

# What is said, and its seconds at most; then what to run. Its output goes to a file of that name.
part() {
  local name=$1 limit=$2
  shift 2
  timeout "$(at_most "$limit")" "$@" > "$OUT/$name.txt" 2>&1
  tail -n 24 "$OUT/$name.txt"
  echo "[$name: $((SECONDS - BEGIN)) s]"
}

tests() {
  local name=$1
  shift
  timeout "$(at_most 45)" python -m pytest -n 0 -q -m gpu --durations=4 -p no:cacheprovider "$@" > "$OUT/gpu_tests_$name.txt" 2>&1
}

for one in $PARTS; do
  case $one in
    rounds) part rounds-h200 100 python benchmarks/bench_rounds.py --json "$OUT/rounds-h200.json" ;;
    fcnn) part training-gpu-fcnn 35 python benchmarks/bench_training_gpu.py --models fcnn --json "$OUT/training-gpu-fcnn.json" ;;
    cnn) part training-gpu-cnn 35 python benchmarks/bench_training_gpu.py --models cnn --json "$OUT/training-gpu-cnn.json" ;;
    resnet) part training-gpu-resnet18 50 python benchmarks/bench_training_gpu.py --models resnet18 --modes torch,bf16 --ways --json "$OUT/training-gpu-resnet18.json" ;;
    cnn_bf16) part training-gpu-cnn-bf16 25 python benchmarks/bench_training_gpu.py --models cnn --modes bf16 --json "$OUT/training-gpu-cnn-bf16.json" ;;
    resnet_exact) part training-gpu-resnet18-exact 45 python benchmarks/bench_training_gpu.py --models resnet18 --modes ieee --json "$OUT/training-gpu-resnet18-exact.json" ;;
    leftovers) part leftovers-h200 35 python benchmarks/bench_leftovers.py --json "$OUT/leftovers-h200.json" ;;
    arithmetic) part arithmetic-h200 40 python benchmarks/bench_arithmetic.py --minutes 0.4 --json "$OUT/arithmetic-h200.json" ;;
    start) part start-h200 25 python benchmarks/bench_start.py --json "$OUT/start-h200.json" ;;
    million) part million-h200 30 python benchmarks/bench_million.py --device cuda --sizes 10000,1000000 --json "$OUT/million-h200.json" ;;
    gru) part gru-h200 20 python benchmarks/bench_gru.py --json "$OUT/gru-h200.json" ;;
    probe)
      part probe-h200 25 python benchmarks/probe_gpu.py --minutes 0.3 --without-tiles
      sed -i "s#$PWD/##g" "$OUT/probe-h200.txt" ;;
    tests)
      tests graphs-fcnn tests/learn/test_training.py -k "graphs and fcnn" &
      tests graphs-cnn tests/learn/test_training.py -k "graphs and cnn" &
      tests graphs-gru tests/learn/test_training.py -k "graphs and gru" &
      tests steps tests/learn/test_training.py -k "not graphs" &
      tests convolutions tests/learn/test_convolutions.py tests/learn/test_pooling.py &
      tests bundles tests/learn/test_bundles.py &
      tests one_start tests/learn/test_one_start.py tests/learn/test_factors.py &
      tests arithmetic tests/learn/test_pointwise.py tests/learn/test_arithmetic.py &
      tests pending tests/learn/test_pending.py tests/learn/test_rowwise.py tests/learn/test_keys.py tests/learn/test_recurrences.py &
      tests rounds tests/engines/test_cohort.py tests/algorithms/test_averaging.py tests/algorithms/test_rebuild.py tests/metrics/test_metrics.py &
      tests leftovers tests/rounds/test_process.py &
      wait
      tail -n 9 "$OUT"/gpu_tests_*.txt
      echo "[tests: $((SECONDS - BEGIN)) s]" ;;
  esac
done
