"""The throughput model θ_sys: time of one optimiser step from placement and batch size."""

from __future__ import annotations

from typing import NamedTuple

from polluxsim.common.kernels import helper, kernel
from polluxsim.models import profile

# Used in place of 0, because logarithms are taken later. Source: artifact of Pollux (OSDI '21).
TINY = 1e-8

overlapped = helper(profile.overlapped)


class ThroughputParams(NamedTuple):
    """The parameters θ_sys of an application's step time.

    Source: Pollux (OSDI '21), §3.2.
    """

    # Time of a forward-backward pass: constant part and part per example [s; s/example].
    alpha_grad: float
    beta_grad: float
    # Time to synchronise over several nodes: constant part and part per GPU beyond two [s; s/GPU].
    alpha_node: float
    beta_node: float
    # Time to synchronise within one node: constant part and part per GPU beyond two [s; s/GPU].
    alpha_local: float
    beta_local: float
    gamma: float  # overlap of computing and synchronising, from 1 (none) to 10 (nearly full)


@kernel
def grad_time(params: ThroughputParams, atomic_batch_size: float) -> float:
    """Return T_grad, the time of one forward-backward pass [s]."""
    return params.alpha_grad + params.beta_grad * atomic_batch_size


@helper
def sync_time(params: ThroughputParams, num_nodes: int, num_replicas: int) -> float:
    """Return T_sync, the time to synchronise one optimiser step if nothing overlapped [s]."""
    if num_replicas < 2:
        return TINY
    extra = max(num_replicas - 2, TINY)
    if num_nodes > 1:
        return params.alpha_node + params.beta_node * extra
    return params.alpha_local + params.beta_local * extra


@kernel
def step_time(
    params: ThroughputParams, num_nodes: int, num_replicas: int, atomic_batch_size: float, accumulation_steps: float
) -> float:
    """Return T_iter, the time of one optimiser step [s]."""
    grad = grad_time(params, atomic_batch_size)
    sync = sync_time(params, num_nodes, num_replicas)
    time: float = accumulation_steps * grad + overlapped(grad, sync, params.gamma)
    return time
