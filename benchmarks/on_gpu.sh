#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one go (about an hour): both problems at full size, every kernel under
# compute-sanitizer, the harness's own error, and the gpu tests. Results go to the folder given, logs beside them.
#   benchmarks/on_gpu.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)

for problem in matmul_tt matmul_tt_relu; do
    python3 harness.py --problem "$problem" --device cuda 2>&1 | tee "$out/$problem.log"
done
cp -r results "$out/"
for kernel in kernels/matmul_tt/*.py; do
    python3 harness.py sanitize matmul_tt "$kernel" --device cuda --shape M=129,K=257,N=65 2>&1 | tee -a "$out/sanitize.log"
done
python3 benchmarks/timing_quality.py --device cuda --out "$out" 2>&1 | tee "$out/timing-quality.log"
python3 -m pytest -m gpu 2>&1 | tee "$out/gpu-tests.log"
