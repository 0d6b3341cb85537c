#!/usr/bin/env bash
# Runs what needs an NVIDIA GPU, step by step. Each step ends within 9 minutes, and all together take about an hour.
#   benchmarks/on_gpu.sh FOLDER [STEP ...]
# Without a STEP all steps run, the shortest first. Logs and results go to FOLDER.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
step_s=540

clocks() {  # the judge's clock beside the device's; memory that judge and worker share
    python3 -m pytest -q -p no:cacheprovider tests/gpu/test_clocks.py tests/gpu/test_device_memory.py
}
forged() {  # the times that are told of kernels that hide a part of their time
    python3 benchmarks/forged_times.py --out "$out/forged_times.jsonl"
}
triton() {  # the verdicts on Triton kernels, which the emulated device must give, too
    python3 -m pytest -q -p no:cacheprovider -m gpu tests/emulator/test_triton.py
}
ladder() {  # both problems at full size; benchmarks/keep_measured.py takes the README's results from $out/results
    for problem in matmul_tt matmul_tt_relu; do
        python3 harness.py --problem "$problem" --device cuda --results "$out/results"
    done
}
figures() {  # the ladder's accuracy, and what Nsight Compute counts in it; needs the builds of the step ladder
    python3 benchmarks/ladder_figures.py --out "$out/ladder_figures.jsonl"
}
families() {  # the kernels of the emulator's tests, whose answers a GPU must give, too
    python3 -m pytest -q -p no:cacheprovider -m gpu -n 8 --dist load tests/emulator/test_kernel_families.py
}
variants() {  # kernels with one mistake each, whose verdicts the emulator must give, too
    python3 -m pytest -q -p no:cacheprovider -m gpu tests/emulator/test_broken_variants.py
}
cheats() {
    python3 -m pytest -q -p no:cacheprovider -m gpu tests/adversarial/test_cheats.py
}
sanitize() {
    for kernel in kernels/matmul_tt/*.py; do
        python3 harness.py sanitize matmul_tt "$kernel" --device cuda --shape M=129,K=257,N=65
    done
    python3 -m pytest -q -p no:cacheprovider -m gpu tests/gpu/test_compute_sanitizer.py tests/integration/test_profile.py
}
quality() {  # the error of the harness's own times
    python3 benchmarks/timing_quality.py --device cuda --out "$out"
}
others() {
    python3 -m pytest -q -p no:cacheprovider -m gpu tests/gpu/test_gpu.py tests/unit/test_problem.py
}

steps=(clocks triton forged ladder figures variants families cheats others sanitize quality)
[[ $# -eq 0 ]] || steps=("$@")
export out
for name in "${steps[@]}"; do
    echo "== $name"
    export -f "$name"
    timeout "$step_s" bash -c "$name" 2>&1 | tee "$out/$name.log"
done
