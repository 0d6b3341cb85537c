#!/usr/bin/env bash
# Runs everything that needs an NVIDIA GPU (about an hour): both problems at full size, every kernel under
# compute-sanitizer, the error of the harness's own times, and the gpu tests. Results and logs go to FOLDER.
#   benchmarks/on_gpu.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)

for problem in matmul_tt matmul_tt_relu; do
    python3 harness.py --problem "$problem" --device cuda 2>&1 | tee "$out/$problem.log"
done
cp -r results "$out/"  # benchmarks/keep_measured.py takes the results that the README shows from here
for kernel in kernels/matmul_tt/*.py; do
    python3 harness.py sanitize matmul_tt "$kernel" --device cuda --shape M=129,K=257,N=65 2>&1 | tee -a "$out/sanitize.log"
done
python3 benchmarks/timing_quality.py --device cuda --out "$out" 2>&1 | tee "$out/timing-quality.log"
python3 -m pytest -m gpu 2>&1 | tee "$out/gpu-tests.log"
