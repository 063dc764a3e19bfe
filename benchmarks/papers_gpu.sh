#!/usr/bin/env bash
# Runs of the papers' tables on a machine with a GPU and many cores, most valuable first; stops in time and goes on when called again.
#
#   bash benchmarks/papers_gpu.sh OUT MINUTES [GPU_PROCESSES] [CPU_PROCESSES]
#
# OUT gets papers-gpu.tar.xz and papers-cpu.tar.xz, the figures of finished runs. Elsewhere: unpack each in a folder of its own, and
#   covey reproduce --many PATTERN … --minutes 0 --out FOLDER --docs
# makes and stores the tables that have all their runs.
set -u
out=$1 minutes=$2 gpu=${3:-12} cpu=${4:-2}
kept=${PAPERS_RUNS:-/tmp/papers-runs}
mkdir -p "$out" "$kept"
export PYTHONPATH=src:${PYTHONPATH:-} OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
limit=$(python3 -c "print(int(60 * $minutes + 25))")

pool() { # NAME DEVICE PROCESSES PATTERN…
    local name=$1 device=$2 processes=$3 patterns=()
    shift 3
    for pattern in "$@"; do patterns+=(--many "$pattern"); done
    timeout -s INT "$limit" python -m covey reproduce "${patterns[@]}" --device "$device" --workers "$processes" \
        --minutes "$minutes" --out "$kept/$name" >"$out/papers-$name.txt" 2>&1
    cp "$kept/$name/runs.tar.xz" "$out/papers-$name.tar.xz"
    tail -3 "$out/papers-$name.txt"
}

pool cpu cpu "$cpu" 'mingledpie/fig3' 'pqfed/fig3/*' 'pqfed/fig5/*' 'pqfed/fig4/*' 'pqfed/fig6/*' 'mingledpie/attackers/*' \
    'property_inference/acquisition/*' &
pool gpu cuda "$gpu" 'mingledpie/table2/mnist' 'mingledpie/table2/location30' 'mingledpie/table2/fashion_mnist' \
    'afc_cfl/local_work/mnist' 'afc_cfl/local_work/emnist*' 'afc_cfl/local_work/cifar10' \
    'fedcaprivacy/table2_tuned/mnist' 'mingledpie/table3/mnist' 'mingledpie/table5/mnist' 'mingledpie/fig[5678]/mnist' \
    'fedcaprivacy/table2_tuned/fashion_mnist' 'fedcaprivacy/linkage/fashion_mnist' 'fedcaprivacy/linkage/mnist' \
    'pqfed/table4/mnist' 'pqfed/table7/mnist' 'mingledpie/table3/location30' 'mingledpie/table5/location30' \
    'property_inference/table9/utkface' 'property_inference/table3/utkface' 'property_inference/mild/utkface' \
    'fedcaprivacy/table2/mnist' 'fedcaprivacy/fig[235]/mnist' 'fedcaprivacy/alignment/mnist' \
    'fedcaprivacy/table2/fashion_mnist' 'fedcaprivacy/fig[235]/fashion_mnist' 'fedcaprivacy/alignment/fashion_mnist' \
    'mingledpie/table3/fashion_mnist' 'mingledpie/table5/fashion_mnist' 'afc_cfl/table1/*' 'afc_cfl/table2/*' \
    'pqfed/table[26]/mnist' 'mingledpie/table[78]/mnist' 'baselines/*' 'fedcaprivacy/linkage_told/*' 'afc_cfl/*' \
    'property_inference/table[457]/utkface' 'mingledpie/table2/cifar10' 'pqfed/table[2467]/cifar10' \
    'mingledpie/fig[5678]/fashion_mnist' 'property_inference/tasks/lfw' &
OMP_NUM_THREADS=1 timeout -s INT "$limit" python benchmarks/map_rebuild.py work --processes 2 --minutes "$minutes" \
    --lines "$kept/map_work.jsonl" >"$out/map_work.txt" 2>&1
cp "$kept/map_work.jsonl" "$out/"
wait
