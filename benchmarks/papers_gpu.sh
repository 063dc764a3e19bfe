#!/usr/bin/env bash
# Runs of the papers' tables on a machine with a GPU and many cores, most tables for a second first; stops in time and goes on when
# called again, also with other data.
#
#   bash benchmarks/papers_gpu.sh OUT MINUTES [PROCESSES]
#
# OUT gets papers-gpu.tar.xz, the figures of finished runs. Elsewhere: unpack it in a folder, and
#   covey reproduce --many PATTERN … --minutes 0 --out FOLDER --docs
# makes and stores the tables that have all their runs.
set -u
out=$1 minutes=$2 gpu=${3:-10}
kept=${PAPERS_RUNS:-/tmp/papers-runs} data=${PAPERS_DATA:-/tmp/papers-data}
mkdir -p "$out" "$kept" "$data"
cp -n "$COVEY_DATA"/*.npz "$data"/ # so that a later call may bring other datasets
export COVEY_DATA=$data PYTHONPATH=src:${PYTHONPATH:-} OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
# Vectors of a megabyte come and go by the thousand: taking their memory from the system each time costs more than filling it.
export MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864
limit=$(python3 -c "print(int(60 * $minutes + 30))")

pool() { # NAME DEVICE PROCESSES PATTERN…
    local name=$1 device=$2 processes=$3 patterns=()
    shift 3
    for pattern in "$@"; do patterns+=(--many "$pattern"); done
    timeout -s INT "$limit" python -m covey reproduce "${patterns[@]}" --device "$device" --workers "$processes" \
        --minutes "$minutes" --out "$kept/$name" >"$out/papers-$name.txt" 2>&1
    cp "$kept/$name/runs.tar.xz" "$out/papers-$name.tar.xz"
    grep -c " done, " "$out/papers-$name.txt"
    tail -3 "$out/papers-$name.txt"
}

pool gpu cuda "$gpu" \
    'mingledpie/table3/mnist' 'mingledpie/fig[49]/mnist' 'mingledpie/table5/mnist' 'mingledpie/fig[5678]/mnist' \
    'afc_cfl/table1/fashion_mnist' 'afc_cfl/confirm/fashion_mnist' 'afc_cfl/local_work/fashion_mnist' 'afc_cfl/table1/mnist' \
    'afc_cfl/confirm/mnist' \
    'property_inference/fig2/yelp-like' 'property_inference/tasks/utkface' 'property_inference/undefended/utkface' \
    'fedcaprivacy/table[12]/mnist' 'fedcaprivacy/beta*/mnist' 'fedcaprivacy/fig4/mnist' 'fedcaprivacy/alignment/mnist' \
    'mingledpie/table3/fashion_mnist' 'mingledpie/fig[49]/fashion_mnist' 'mingledpie/table5/fashion_mnist' \
    'mingledpie/fig[5678]/fashion_mnist' \
    'afc_cfl/table1/emnist*' 'afc_cfl/confirm/emnist*' 'pqfed/table2/mnist' \
    'fedcaprivacy/tuning/mnist' 'fedcaprivacy/table[12]_tuned/mnist' \
    'afc_cfl/table2/mnist' 'afc_cfl/fig2/mnist' 'afc_cfl/tune/mnist' \
    'fedcaprivacy/table[12]/fashion_mnist' 'fedcaprivacy/beta*/fashion_mnist' 'fedcaprivacy/fig4/fashion_mnist' \
    'mingledpie/table8/mnist' 'mingledpie/table7/fashion_mnist' 'mingledpie/table7/mnist' 'mingledpie/table8/fashion_mnist' \
    'property_inference/undefended/lfw' 'property_inference/tasks/lfw' 'property_inference/tasks/yelp-like' \
    'property_inference/undefended/yelp-like' \
    'property_inference/table3/utkface' 'property_inference/table9/utkface' \
    'afc_cfl/table2/emnist*' 'afc_cfl/fig2/emnist*' 'afc_cfl/tune/emnist*' 'afc_cfl/table2/fashion_mnist' \
    'afc_cfl/fig2/fashion_mnist' 'afc_cfl/tune/fashion_mnist' \
    'pqfed/table4/mnist' 'pqfed/table7/mnist' 'pqfed/table6/mnist' \
    'property_inference/table6/utkface' 'property_inference/table4/utkface' 'property_inference/table[78]/utkface' \
    'fedcaprivacy/alignment/fashion_mnist' 'fedcaprivacy/fig5/mnist' 'fedcaprivacy/fig5/fashion_mnist' 'fedcaprivacy/fig2/mnist' \
    'fedcaprivacy/fig2/fashion_mnist' \
    'fedcaprivacy/tuning/fashion_mnist' 'fedcaprivacy/table[12]_tuned/fashion_mnist' \
    'property_inference/table5/utkface' 'baselines/label_sets/mnist' 'afc_cfl/matched/mnist' 'afc_cfl/choices/mnist' \
    'fedcaprivacy/linkage/fashion_mnist' 'fedcaprivacy/linkage/mnist' 'property_inference/mild/utkface' 'baselines/*'
