"""Product of two transposed matrices: C = Aᵀ Bᵀ in float32, with A of shape (K, M) and B of shape (N, K).

KernelBench (level 1, problem 18, "Matmul with transposed both") documents A as (M, K) and B as (K, N),
but its inputs are torch.rand(K, M) and torch.rand(N, K). The inputs are right: then A.T is (M, K) and B.T is
(K, N), and their product C is (M, N). With the documented shapes, A.T would be (K, M) and B.T would be (N, K),
which can be multiplied only if M = N.
"""

import math

import torch
import torch.nn as nn

M, K, N = 2048, 8192, 4096

# A single element; primes; K = 1; sizes one below and one above multiples of common tiles (32, 64, 128); a long
# sum; a tall output; a wide output with more columns than the y and z dimensions of a CUDA grid allow (65535).
CHECK_SHAPES = [
    dict(M=1, K=1, N=1),
    dict(M=7, K=13, N=11),
    dict(M=33, K=1, N=65),
    dict(M=31, K=33, N=127),
    dict(M=129, K=31, N=33),
    dict(M=127, K=63, N=129),
    dict(M=5, K=4099, N=3),
    dict(M=4099, K=5, N=2),
    dict(M=2, K=3, N=65537),
]
CPU_SHAPE = dict(M=48, K=256, N=64)
TOLERANCE = dict(rtol=1e-4, atol=1e-4)
# With K * limit^2 <= 2^24, each partial sum of the integer case is exact in float32, in any order.
STRESS = {
    "normal": {},
    "integers": {"limit": min(8, math.isqrt(2**24 // K))},
    "scaled": {"log2_range": 10},
}


class Model(nn.Module):
    """The reference: C[m, n] = sum over k of A[k, m] * B[n, k]."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """Multiply A (K, M) and B (N, K), both transposed, into C (M, N)."""
        return torch.matmul(A.T, B.T)


def get_inputs() -> list[torch.Tensor]:
    """Return A (K, M) and B (N, K), uniform in [0, 1), float32, on the CPU."""
    return [torch.rand(K, M), torch.rand(N, K)]


def get_init_inputs() -> list:
    """Return the arguments of Model: none."""
    return []


def flops() -> int:
    """Count the operations of the definition: one multiplication and one addition for each term."""
    return 2 * M * N * K


def bytes_moved() -> int:
    """Count the bytes of A, B and C, each moved once."""
    return 4 * (M * K + N * K + M * N)


def min_flops() -> int:
    """Return a lower bound on the operations of any correct kernel. A faster time than it allows is CHEATED.

    2MNK is not a lower bound: Strassen's algorithm and its successors need fewer operations. It is proven that a
    bilinear algorithm needs at least max(MK, NK, MN) multiplications. The other bound, (MNK)^0.9, is the number of
    multiplications of an algorithm with exponent 2.7. No known practical algorithm is that good: Strassen's has
    2.81, and the best one found by search for small blocks (3x3x6 with 40 products) has 2.774. All of them need
    far more additions than multiplications, which the bound does not count.
    """
    return max(M * K, N * K, M * N, int((M * N * K) ** 0.9))


def min_bytes() -> int:
    """Count the bytes that must be read from memory if the caches start cold: A and B, once each.

    C does not count, because it may still be in the L2 cache when the clock stops.
    """
    return 4 * (M * K + N * K)


def error_scale(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Return |A|ᵀ|B|ᵀ of shape (M, N), in the inputs' dtype: the scale of the rounding error of each sum."""
    return torch.matmul(A.abs().T, B.abs().T)
