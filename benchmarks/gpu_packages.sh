#!/usr/bin/env bash
# Packages that covey needs on a GPU machine which has torch, scipy and scikit-learn and can fetch nothing, in one archive of 10 MB.
#
#   bash benchmarks/gpu_packages.sh packages.tar.xz [PYTHON]       PYTHON: version there, 3.12 unless told
#
# There: mkdir packages && tar -xJf packages.tar.xz -C packages && export PYTHONPATH=$PWD/packages:$PWD/src
# Left out for their size: numba with llvmlite (170 MB; what needs it, encryption and secret noise, does not run there), and what POT
# brings for a method that covey does not use (170 MB).
set -eu
archive=$(realpath -m "$1") python=${2:-3.12}
cd "$(dirname "$0")/.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
platforms=()
for tag in manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28 manylinux_2_34; do platforms+=(--platform "${tag}_x86_64"); done
pip install --quiet --disable-pip-version-check --target "$site" --python-version "$python" --only-binary=:all: --no-deps "${platforms[@]}" \
    --constraint constraints.txt \
    POT gmpy2 rbcl seal-python cryptography cffi pycparser dp-accounting absl-py attrs dm-tree mpmath barriers wrapt typing-extensions \
    typer click rich shellingham markdown-it-py mdurl pygments jinja2 markupsafe joblib threadpoolctl narwhals \
    pytest pluggy iniconfig packaging hypothesis sortedcontainers pytest-xdist execnet
rm -rf "$site"/ot/bsp "$site"/bin
mkdir "$site"/ot/bsp
echo 'compute_bspot_bijection = merge_bijections = None' >"$site"/ot/bsp/__init__.py # `import ot` wants the names
find "$site" -depth -type d \( -name __pycache__ -o -name tests \) -exec rm -rf {} +
find "$site" -name '*.so*' -type f -exec strip --strip-debug {} + 2>/dev/null || true
tar -C "$site" -c . | xz -6 >"$archive"
ls -l "$archive"
