"""Builds the model of a worker's candidate, and compares its parameters with the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from kernel_harness.device import WorkerDevice
from kernel_harness.ipc import tensors
from kernel_harness.ipc.messages import Made, Make
from kernel_harness.problem.varied_parameters import varied


def built(kind: Any, request: Make, memory: torch.Tensor, device: WorkerDevice) -> tuple[Any, Made]:
    """Seeds torch's generator as for the reference model, and builds a model of the class `kind` on the device.

    `memory`, a flat uint8 tensor, holds the constructor's inputs. Returns the model and the reply to `request`. If
    `request.varied`, the reply says whether the model has the reference's parameters. It says no if the constructor
    fails: the constructor may have checked the parameters that it sets. The model is None then. If not
    `request.varied`, an exception that the constructor raises is raised.
    """
    layout = request.inputs
    inputs, state = tensors.unflatten(layout.structure, [leaf.view(memory).clone() for leaf in layout.leaves])
    torch.manual_seed(request.seed)
    try:
        with torch.no_grad(), varied(request.seed) if request.varied else nullcontext():
            model = kind(*inputs)
        made = Made(_has(model, state)) if request.varied else Made(False, _differing(model, state))
    except Exception:
        if request.varied:
            return None, Made(False)
        raise
    if isinstance(model, torch.nn.Module):
        model = model.to(device.torch_device)
    if request.compile_mode:
        model = torch.compile(model, mode=request.compile_mode)
    device.synchronize()
    return model, made


def _has(model: Any, state: Mapping[str, int]) -> bool:
    """Returns whether the model's state dict has a tensor for each name in `state`, with the checksum in `state`."""
    if not isinstance(model, torch.nn.Module):
        return False
    return state.items() <= tensors.checksums(model.state_dict()).items()


def _differing(model: Any, state: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the names in `state`, numbers of `tensors.value_sums`, that no tensor of the model's state dict has.

    Returns nothing if the model has no floating-point tensor: its parameters are then elsewhere.
    """
    own = tensors.value_sums(model.state_dict()) if state and isinstance(model, torch.nn.Module) else {}
    return tuple(name for name, number in state.items() if own and number not in own.values())
