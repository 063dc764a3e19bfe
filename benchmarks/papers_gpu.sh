#!/usr/bin/env bash
# Runs of the papers' tables on a machine with a GPU and many cores: one part after another, each with its own data. Stops in time;
# the same call goes on where it stopped, as long as the machine lasts.
#
#   bash benchmarks/papers_gpu.sh OUT PART MINUTES [PROCESSES]       PART: mnist, fashion, lfw, cifar100, cifar10 or faces
#
# TABLES='PATTERN PATTERN …' runs these in place of the part's list, in its folder. ARITHMETIC=torch (or tf32, bf16) computes them so,
# in a folder of its own (docs/simulation_at_scale.md); without it in exact float32. SEEDS=10 runs each with so many seeds: three leave
# most verdicts of AFC-CFL undecided, and its runs on MNIST, Fashion-MNIST and EMNIST are the cheapest of all (2 to 5 s each).
# OUT gets three files: PART.tar.xz (figures of runs that have ended: all but those of the last minute, at any
# time), PART.txt (what ran when, for how long), PART-tables.tar.xz.
# MINUTES is when the last run is broken off, and work with it: give enough; packing takes half a minute more. Where data of the part are not there it says which,
# and runs nothing. Elsewhere: unpack PART.tar.xz in a folder, and
#   covey reproduce --many PATTERN … --minutes 0 --out FOLDER --docs && covey reproduce --plan --docs
# makes and stores the tables that have all their runs.
#
# Data are those of $COVEY_DATA, and of earlier calls on the same machine. One call takes 64 MiB along, of which the sources are 23:
#   mnist     mnist.npz location30.npz                     10 MB
#   fashion   fashion_mnist.npz utkface32.npz              31 MB
#   lfw       lfw62x47.npz emnist_bymerge47.npz            39 MB
#   cifar100  cifar100.npz                                 27 MB
#   cifar10   cifar10_full.npz in pieces (python benchmarks/cifar10_pieces.py), one a call: `bash benchmarks/papers_gpu.sh OUT keep 0`
#             puts each by; with the last of them the part runs. Or cifar10.npz, a part of 20,000 + 5,000 images: 42 MB
#   faces     utkface32.npz                                5 MB
#
# A machine that has torch but not what else covey needs: benchmarks/gpu_packages.sh packs it here.
#
# In a part, tables come in the order of what they complete: items of docs/coverage.md that lack nothing else first, then the
# cheapest. What runs took on one H200 under MPS, by the clock for all of them (exact float32; 17 November where nothing is said):
#   mingledpie/{table5,fig[5678]}/location30               39 runs, 15 processes, 129 s: 40 s a run of 300 rounds
#   mingledpie/fig[5678]/fashion_mnist                      30 runs, 15 processes, 61 s
#   mingledpie/{table5,fig[5678]}/cifar10, 50,000 images    39 runs, 13 processes, about 300 s: 65 to 120 s a run of 240 rounds
#   fedcaprivacy/{table[12],fig[45]}/cifar10                66 runs of LeNet and 60 rounds, 13 processes, about 230 s. The paper's network
#                                                           is cnn5 (35 million operations an image forwards, LeNet 1.3), and its
#                                                           Table I needs 240 rounds: by operations 4e15 a run of 50,000 images, 100 s
#                                                           of the card alone in exact float32; TF32 (ARITHMETIC=torch) is for this
#   fedcaprivacy/{table[12],fig[45]}/cifar100               the same of 13,000 images: a quarter
#   afc_cfl/{table2,fig2}/cifar10, 50,000 images            30 runs: 31 s without noise, 220 with it, beside others
#   pqfed/table[2467]/cifar10, all 50,000 images            155 runs, 11 processes, 270 s (16 November)
#   fedcaprivacy/{linkage,table1_fast,table1_sgd}/fashion   156 runs, 13 processes, 174 s (16 November)
#   property_inference/{fig4,tasks}/lfw                     34 runs, 14 processes, 202 s (16 November): 50 s of 500 rounds, 200 of 5,000
#   property_inference/table3/lfw, one run alone            11 s of 100 rounds, of which the attack takes 8.5 (before steps were captured)
#   mingledpie/table2/cifar100, ARITHMETIC=torch            6 runs of 5 rounds, 2 processes, 98 s (18 November): some 3 s a round of
#                                                           ResNet-18, so table6 about 5 minutes, fig9 half an hour, fig4 an hour
#   property_inference/table[39]/lfw, ARITHMETIC=torch      94 runs, 9 processes, 430 s beside 24 on texts (18 November): 40 s a run
#   property_inference/table[39]/yelp-like                  60 to 140 s a run beside them, before the GRU had kernels of its own
#   afc_cfl/table1/mnist, SEEDS=10                          50 runs, 52 s; table2/mnist 25 to 29 s a run (18 November)
#   property_inference/fig2/{lfw,utkface}, fig3/yelp-like,  54 runs, 18 processes, 242 s (19 November): 195 to 235 s a run on LFW, 115 on UTKFace,
#   mingledpie/table3/location30 in one                     55 on texts; FedEM 115 to 180 s a run, the others of Table III 20 to 40
#   mingledpie/table6/cifar100, ARITHMETIC=torch            2 runs, 2 processes, 275 s (19 November, 23:21): 2.6 s a round of ResNet-18
#                                                           alone, 2.4 for four side by side: fig9 has 500 more rounds, 20 minutes
#   property_inference/table[3789]/utkface                  160 runs, 15 processes, 202 s: 9 to 25 s a run (19 November, 23:28)
#   afc_cfl/{table2,fig2,tune}/emnist_bymerge47, SEEDS=10   79 runs, 15 processes, 96 s (19 November, 23:26)
# What is left of property inference on LFW (tables 3 to 9, and 4 to 8 with more clients) is 1,392 runs of 500 rounds, 6e16 operations
# in trainings and choices and some more in attacks: by the figures above two leases and more, with ARITHMETIC=torch.
# Where the time of one run goes says benchmarks/profile_table.py, before a table is run. Never mix heavy runs with small ones: beside
# six of AFC-CFL, FedCAPrivacy's took 28 s in place of 3. A machine that is lent goes back as soon as nobody uses it, with all that is
# on it: run a part in one call that ends with its files, not in the background.
# What takes longer than a call may be started in a session of its own (setsid) and outlast it, if the next call is asked for together
# with this one: half a minute of thought between two calls took the machine, and ten minutes of four runs with it, on 19 November.
# Documents need not travel: moved out of the checkout before the call, they leave 7 MB of sources.
set -u
out=$1 part=$2 minutes=$3 processes=${4:-15}
kept=${PAPERS_RUNS:-/tmp/papers-runs}/$part data=${PAPERS_DATA:-/tmp/papers-data}
made=$kept${ARITHMETIC:+/$ARITHMETIC} # where covey puts runs of another arithmetic

case $part in
keep) tables=() ;; # data alone: kept for later calls
mnist) tables=( # what was asked for beside the papers
    'fedcaprivacy/table2_tuned/mnist' 'fedcaprivacy/fig3/mnist' 'mingledpie/table7/mnist'
) ;;
fashion) tables=( # what Fashion-MNIST alone lacks, the cheapest first
    'mingledpie/table3/fashion_mnist' 'baselines/dirichlet*/fashion_mnist' 'property_inference/mild/utkface'
    'fedcaprivacy/tuning/fashion_mnist' 'fedcaprivacy/table[12]_tuned/fashion_mnist' 'mingledpie/table8/fashion_mnist'
) ;;
lfw) tables=(
    'property_inference/undefended/lfw' 'property_inference/table6/lfw' 'property_inference/table4/lfw'
    'property_inference/table5/lfw' 'property_inference/table[78]/lfw'
    'property_inference/table3/lfw' 'property_inference/table9/lfw'
    'property_inference/table3/yelp-like' 'property_inference/table9/yelp-like'
    'property_inference/table[45678]_more/lfw'
) ;;
cifar100) tables=(
    'fedcaprivacy/table[12]/cifar100' 'fedcaprivacy/fig[45]/cifar100'
    'mingledpie/table2/cifar100' 'mingledpie/table6/cifar100' 'mingledpie/fig[49]/cifar100'
    'fedcaprivacy/tuning/cifar100' 'fedcaprivacy/table[12]_tuned/cifar100' 'mingledpie/table3/cifar100'
) ;;
cifar10) tables=(
    'fedcaprivacy/table[12]/cifar10' 'fedcaprivacy/fig[45]/cifar10'
    'fedcaprivacy/tuning/cifar10' 'fedcaprivacy/table[12]_tuned/cifar10' 'afc_cfl/choices/cifar10' 'afc_cfl/confirm/cifar10'
    'afc_cfl/matched/cifar10' 'mingledpie/fig[49]/cifar10' 'mingledpie/table3/cifar10' 'afc_cfl/local_work/cifar10'
    'mingledpie/table2/cifar10'
) ;;
faces) tables=( # Tables 4 to 8 of property inference with 10, 15 and 20 clients
    'property_inference/table6_more/utkface' 'property_inference/table4_more/utkface' 'property_inference/table5_more/utkface'
    'property_inference/table[78]_more/utkface'
) ;;
*)
    echo "no part is named '$part': mnist, fashion, lfw, cifar100, cifar10 or faces" >&2
    exit 2
    ;;
esac

[ -n "${TABLES:-}" ] && set -f && tables=($TABLES) && set +f
mkdir -p "$out" "$kept" "$data"
cp -n "$COVEY_DATA"/*.npz* "$data"/
for first in "$data"/*.npz.00; do # a file in pieces, which came in several calls: benchmarks/cifar10_pieces.py
    whole=${first%.00}
    [ -f "$first" ] && [ "$(ls "$whole".[0-9][0-9] | wc -l)" = "$(cat "$whole.count")" ] && cat "$whole".[0-9][0-9] >"$whole"
done
if [ "$part" = keep ]; then
    ls -l "$data"
    exit 0
fi
export COVEY_DATA=$data PYTHONPATH=src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
# Vectors of a megabyte come and go by the thousand: taking their memory from the system each time costs more than filling it.
export MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864
device=cpu
if command -v nvidia-smi >/dev/null; then
    device=cuda
    # Many small kernels of many processes at once. A daemon that holds our output open would keep the caller waiting for its end.
    command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d >/dev/null 2>&1 </dev/null
fi

wanted=()
for table in "${tables[@]}"; do wanted+=(--many "$table"); done
# What has ended so far is in OUT at any time: who calls may be cut off, and this machine with it.
while sleep 15 && kill -0 $$; do
    cp "$made/runs.tar.xz" "$out/.runs.part" && mv "$out/.runs.part" "$out/$part.tar.xz"
done >/dev/null 2>&1 &
copying=$!
timeout -s INT -k 20 "$(python3 -c "print(int(60 * $minutes + 60))")" python -m covey reproduce "${wanted[@]}" --device "$device" \
    --workers "$processes" --minutes "$minutes" --out "$kept" ${ARITHMETIC:+--arithmetic "$ARITHMETIC"} \
    ${SEEDS:+--seeds "$SEEDS"} >"$out/$part.txt" 2>&1
kill $copying
if grep "data that these tables need are not in" "$out/$part.txt" >&2; then
    exit 1
fi
cp "$made/runs.tar.xz" "$out/$part.tar.xz"
(cd "$made" && ls *.json >/dev/null 2>&1 && tar -cJf "$out/$part-tables.tar.xz" *.json)
grep -c " done, " "$out/$part.txt"
tail -3 "$out/$part.txt"
