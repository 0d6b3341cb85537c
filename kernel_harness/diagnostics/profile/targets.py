"""The GPUs that a time can be estimated for: published figures of each, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_harness.core.errors import UserError


@dataclass(frozen=True)
class Target:
    """The figures of one GPU. `sm` in a name means: of one multiprocessor.

    `float32_flops_per_s` is the published peak, from which the clock follows. `dram_bytes_per_s` is the bandwidth of
    device memory. `l1_sm_bytes` is the size of L1 and shared memory together. `warps_sm` and `blocks_sm` are the most
    that run at the same time. `*_lanes` are results per clock of a multiprocessor. `tensor32_flops_per_s` and
    `tensor64_flops_per_s` are peaks of the tensor cores without sparsity, for TF32 and float64; 0 for none.
    """

    name: str
    multiprocessors: int
    float32_flops_per_s: float
    dram_bytes_per_s: float
    l2_bytes: int
    l1_sm_bytes: int
    shared_sm_bytes: int
    warps_sm: int
    blocks_sm: int
    float32_lanes: int
    float64_lanes: int
    integer_lanes: int
    special_lanes: int
    convert_lanes: int
    tensor32_flops_per_s: float
    tensor64_flops_per_s: float

    @property
    def clock_hz(self) -> float:
        """Returns the clock at which the published float32 peak is reached: each lane does one FMA for each clock."""
        return self.float32_flops_per_s / (2 * self.multiprocessors * self.float32_lanes)

    @property
    def l2_bytes_per_s(self) -> float:
        """Returns the bandwidth between L2 and all multiprocessors, if each multiprocessor gets 64 bytes per clock."""
        return L2_BYTES_PER_CLOCK_SM * self.multiprocessors * self.clock_hz


# Every figure of the table is published by NVIDIA:
# - multiprocessors, float32 and tensor peaks, bandwidth of DRAM: data sheets of H200, H100 SXM, A100 80GB SXM and L4;
#   "NVIDIA Ada GPU Architecture" (white paper) for the RTX 4090.
# - size of L2, and of L1 with shared memory: white papers "NVIDIA H100 Tensor Core GPU Architecture", "NVIDIA A100
#   Tensor Core GPU Architecture" and "NVIDIA Ada GPU Architecture".
# - warps, blocks and shared memory of a multiprocessor: CUDA C++ Programming Guide, "Technical Specifications per
#   Compute Capability". Lanes: the same guide, "Throughput of Native Arithmetic Instructions".
# The bandwidth of L2 is not published for all of them. 64 bytes per clock and multiprocessor is what the white paper of
# the V100 gives, and measurements of later GPUs come near it.
L2_BYTES_PER_CLOCK_SM = 64
_KIB, _MIB = 1 << 10, 1 << 20
_ALL = (
    Target(
        "h200", 132, 67e12, 4.8e12, 50 * _MIB, 256 * _KIB, 228 * _KIB, 64, 32,
        128, 64, 64, 16, 64, 494.7e12, 67e12,
    ),
    Target(
        "h100", 132, 67e12, 3.35e12, 50 * _MIB, 256 * _KIB, 228 * _KIB, 64, 32,
        128, 64, 64, 16, 64, 494.7e12, 67e12,
    ),
    Target(
        "a100", 108, 19.5e12, 2.039e12, 40 * _MIB, 192 * _KIB, 164 * _KIB, 64, 32,
        64, 32, 64, 16, 64, 156e12, 19.5e12,
    ),
    Target(
        "rtx4090", 128, 82.6e12, 1.008e12, 72 * _MIB, 128 * _KIB, 100 * _KIB, 48, 24,
        128, 2, 64, 16, 64, 82.6e12, 0,
    ),
    Target(
        "l4", 58, 30.3e12, 0.3e12, 48 * _MIB, 128 * _KIB, 100 * _KIB, 48, 24,
        128, 2, 64, 16, 64, 60e12, 0,
    ),
)  # fmt: skip
TARGETS = {target.name: target for target in _ALL}
# Clocks until a load has its value, and until the result of an arithmetic instruction can be used. Rounded from the
# figures that are measured for the H100 in "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture"
# (arXiv:2402.13499); those for the A100 and the RTX 4090 there are similar.
L1_CLOCKS, SHARED_CLOCKS, L2_CLOCKS, DRAM_CLOCKS, ARITHMETIC_CLOCKS = 40, 30, 260, 480, 4
DEFAULT = TARGETS["h200"]


def named(name: str) -> Target:
    """Returns the target with this name. Raises UserError for an unknown name."""
    if name not in TARGETS:
        raise UserError(f"{name} is no known target. Known are: {', '.join(TARGETS)}.")
    return TARGETS[name]
