"""Implements operators that torch has for CUDA alone, so that the emulated device can run the layers that use them.

Torch's layers choose these operators because emulated tensors report that they are on a CUDA device. Each is
implemented here by other operators that torch also has for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

_registered: list[torch.library.Library] = []


def register() -> None:
    """Registers the operators of this module in torch. A second call does nothing.

    For an operator that is registered for the CPU, the emulated device passes its tensors as host tensors.
    """
    if _registered:
        return
    for key, operators in (("CPU", _OPERATORS), ("CUDA", dict.fromkeys(_QUESTIONS, _false))):
        library = torch.library.Library("aten", "IMPL", key)
        for name, function in operators.items():
            library.impl(name, function)
        _registered.append(library)  # the operators are unregistered when the Library is deleted


def _depthwise(convolution: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns a depthwise form of `conv2d` or `conv3d`: each channel of the input is a group of its own."""

    def depthwise(
        values: torch.Tensor,
        weight: torch.Tensor,
        kernel_size: Sequence[int],
        bias: torch.Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> torch.Tensor:
        return convolution(values, weight, bias, stride, padding, dilation, values.shape[1])

    return depthwise


def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns three tensors: the next hidden state, the next cell state, and the gates after their activations.

    Each row of the gates, of the shape (batch, 4 * size), holds the four gates of `torch.nn.LSTM`: input, forget, cell
    and output.
    """
    raw = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    enter, forget, new, leave = raw.chunk(4, 1)
    gates = [enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()]
    following = gates[1] * cell + gates[0] * gates[2]
    return gates[3] * following.tanh(), following, torch.cat(gates, 1)


def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the next hidden state, and one tensor with the values that torch's backward pass needs.

    Each row of `input_gates` and of `hidden_gates`, of the shape (batch, 3 * size), holds the three gates of
    `torch.nn.GRU`: reset, update and new. Each row of the second tensor, of the shape (batch, 5 * size), holds the
    three gates after their activations, then `hidden`, then the hidden part of the gate new with its bias.
    """
    inputs = _biased(input_gates, input_bias).chunk(3, 1)
    hiddens = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    reset, update = (inputs[0] + hiddens[0]).sigmoid(), (inputs[1] + hiddens[1]).sigmoid()
    new = (inputs[2] + reset * hiddens[2]).tanh()
    return new + update * (hidden - new), torch.cat([reset, update, new, hidden, hiddens[2]], 1)


def _biased(gates: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return gates if bias is None else gates + bias


def _widened(product: Callable[..., torch.Tensor], tensors: int) -> Callable[..., torch.Tensor]:
    """Returns a function that computes `product` with an output of a given dtype.

    The returned function takes `tensors` tensors, then the dtype, then the keyword arguments of `product`. It converts
    the tensors to the dtype before it calls `product`, so products and sums are of that dtype too.
    """

    def widened(*arguments: Any, **keywords: Any) -> torch.Tensor:
        dtype = arguments[tensors]
        return product(*(each.to(dtype) for each in arguments[:tensors]), **keywords)

    return widened


def _false(*_: Any, **__: Any) -> bool:
    return False


# Operators that ask whether a library of the GPU's vendor computes a loss. The emulated device has no such library.
_QUESTIONS = (
    "_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor",
)  # fmt: skip

_OPERATORS: dict[str, Callable[..., Any]] = {
    "_conv_depthwise2d": _depthwise(functional.conv2d),
    "conv_depthwise3d": _depthwise(functional.conv3d),
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_gru_cell": _gru_cell,
    "mm.dtype": _widened(torch.mm, 2),
    "bmm.dtype": _widened(torch.bmm, 2),
    "addmm.dtype": _widened(torch.addmm, 3),
    "baddbmm.dtype": _widened(torch.baddbmm, 3),
}
