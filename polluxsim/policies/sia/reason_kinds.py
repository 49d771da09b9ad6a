"""Kinds of reasons of Sia, and when they explain that a job has fewer GPUs than it could use."""

from __future__ import annotations

from math import inf

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen

COST_ROUNDING = 0.2  # share by which worths may differ at the same cost: costs worth^p are rounded to two decimals
ROUNDING = 1e-6  # largest difference of equal restart factors


def has_largest_configuration(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether no larger configuration fits on the idle GPUs: a power of two on a node, or whole nodes."""
    held_gpus = seen.held[job.job_id]
    for name in job.speeds:
        sizes = [gpus for gpus, gpu_type in zip(seen.gpus_per_node, seen.types, strict=True) if gpu_type == name]
        size = max(sizes)
        parts = [2**power for power in range(size.bit_length())]
        counts = [*parts, *(nodes * size for nodes in range(1, sizes.count(size) + 1))]
        if any(held_gpus < gpus <= min(held_gpus + seen.free[name], job.max_replicas) for gpus in counts):
            return False
    return True


def loses_by_restart(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the reason states the true restart factor, and it makes the best configuration worth less.

    If the best configuration does not fit, the best one on idle GPUs counts.
    """
    value = _worth_after_restart(job, reason, seen)
    return value is not None and value <= _worth(reason, "has", 0.0) * (1 + COST_ROUNDING)


def gains_less_than_it_waits(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job held GPUs, and idle GPUs, times the true restart factor, are worth less than the slowest.

    The slowest configuration is worth 1. The cost of waiting exceeds the cost of that configuration.
    """
    value = _worth_after_restart(job, reason, seen)
    return job.gpus_before > 0 and value is not None and value < 1.0


def _worth_after_restart(job: JobSeen, reason: Reason, seen: RoundSeen) -> float | None:
    """Return the worth of the configuration that the job could get after a restart; None if the reason is not true."""
    age = seen.time - job.submit_time
    factor = max(age - job.num_restarts * job.delay, 0.0) / (age + job.delay)
    if abs(reason.numbers.get("restart_factor", inf) - factor) > ROUNDING:
        return None
    role = "best" if reason.kind.name == RESTART_NOT_WORTH.name else "idle"
    return _worth(reason, role, inf) * factor


def _worth(reason: Reason, role: str, default: float) -> float:
    """Return the worth of the configuration that a reason names in a role."""
    return next((value for name, value in reason.numbers.items() if name.startswith(f"{role} ")), default)


_HAS = "[has?The job has {has:label}, worth {has:.3g} times its slowest configuration|The job has no GPUs]"

_RIVAL = (
    "[must_stay=1? It restarts there, so it keeps these GPUs."
    "|rival_saving? The policy gives GPUs where they lower the sum of costs most. This job lowers it by {saving:.2f}. "
    "Of the waiting jobs, {first} would lower it most, by {rival_saving:.2f} with {rival_gpus:GPU} of this type"
    "[rival_saving=saving?: of equal choices, the solver takes any].]"
)
"""Sentence on the waiting job that would save most with the GPUs of a job."""

BEST_CONFIGURATION = ReasonKind(
    "best-configuration",
    f"{_HAS}. No configuration that it may have now is worth more[most_gpus? (at most {{most_gpus:GPU}})].{_RIVAL}",
    {"most_gpus": "GPUs", "rival_gpus": "GPUs"},
    meaning="A job has the best configuration.",
    excuses_running=has_largest_configuration,
)
RESTART_NOT_WORTH = ReasonKind(
    "restart-not-worth",
    f"{_HAS}[is_best=1?, and {{best:.3g}} times without the restart. This is the best configuration that it may have "
    "now[most_gpus? (at most {most_gpus:GPU})]"
    "|. {best:label} would be worth {best:.3g} times, but the restart would leave only {restart_factor:.2f} of that]."
    f"{_RIVAL}",
    {"most_gpus": "GPUs", "rival_gpus": "GPUs"},
    meaning="A better configuration is not worth a restart.",
    excuses_waiting=gains_less_than_it_waits,
    excuses_running=loses_by_restart,
)
LOST_CONFIGURATION = ReasonKind(
    "lost-configuration",
    f"{_HAS}. {{best:label}} would be worth {{best:.3g}} and lower the sum of costs by {{saving:.2f}}. Of this type, "
    "[gpus_free=0?no GPU is|{gpus_free:GPU} [gpus_free=1?is|are]] idle, and the other jobs together save more with the "
    "rest[: {first} saves least per GPU, {holder_saving:.2f} with {holder_gpus:GPU}]."
    "[ {idle:label} would fit on idle GPUs and be worth {idle:.3g}, but a restart would leave only "
    "{restart_factor:.2f} of that, which saves no more than the job has.]",
    {"gpus_free": "GPUs", "holder_gpus": "GPUs"},
    meaning="Other jobs save more with the GPUs of the best configuration.",
    excuses_waiting=gains_less_than_it_waits,
    excuses_running=loses_by_restart,
)
NO_CONFIGURATION = ReasonKind(
    "no-configuration",
    "The job may have no configuration now: [gpus_up<gpus_needed?it needs at least {gpus_needed:GPU}, and no type has "
    "more than {gpus_up} up|no type and number of GPUs that is up suits it].",
    {"gpus_up": "GPUs", "gpus_needed": "GPUs"},
    meaning="No configuration is allowed for a job.",
)
