#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one go: both problems at full size, the gpu tests, and every kernel
# under compute-sanitizer where it is installed. Results go to the folder given, logs beside them.
#   benchmarks/on_gpu.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)

for problem in matmul_tt matmul_tt_relu; do
    python3 harness.py --problem "$problem" --device cuda 2>&1 | tee "$out/$problem.log"
done
cp -r results "$out/"
python3 -m pytest -m gpu 2>&1 | tee "$out/gpu-tests.log"
if command -v compute-sanitizer >/dev/null; then
    compute-sanitizer --target-processes all python3 harness.py --problem matmul_tt --device cuda \
        --shape M=129,K=257,N=65 --quick --rounds 8 --results "$out/sanitized" 2>&1 | tee "$out/sanitizer.log"
fi
