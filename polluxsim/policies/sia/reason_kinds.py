"""Kinds of reasons of Sia, and when they explain that a job has fewer GPUs than it could use.

Sia gives each job a configuration: a number of GPUs of a type on a number of nodes. The worth of a configuration is the
speed of the job there over its speed in its slowest configuration. The cost of a configuration is its worth to the
power p < 0, rounded and relative to the cost of waiting, and Sia minimises the sum of the costs of all jobs. The saving
of a change is by how much it lowers the cost. A restart factor is the share of the worth that is left after a restart.

A reason names configurations in the names of its numbers: `has 8 t4` is the worth (3.2) of the configuration that the
job has, "8 t4". The role comes first: `has`, `best` for the best configuration, `idle` for the best one on idle GPUs.

A sentence is a template, see `polluxsim.common.templates.filled`. `{has:label}` is the label of `has` ("8 t4"),
`{has:.3g}` its number ("3.2"), and `[has?The job has {has:label}|The job has no GPUs]` becomes the first choice if the
number is known, otherwise the second. Parts in f-strings have doubled braces.
"""

from __future__ import annotations

from math import inf

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen

# Share by which worths may differ at the same cost: costs worth^p are rounded to two decimals.
COST_ROUNDING = 0.2

# Largest difference of equal restart factors.
ROUNDING = 1e-6

_NAME_OF_RESTART_NOT_WORTH = "restart-not-worth"


def has_largest_configuration(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether no larger configuration fits on the idle GPUs: a power of two on a node, or whole nodes."""
    held_gpus = seen.held[job.job_id]
    for name in job.speeds:
        most_gpus = min(held_gpus + seen.free[name], job.max_replicas)
        for gpus in _possible_counts(seen, name):
            is_larger = gpus > held_gpus
            if is_larger and gpus <= most_gpus:
                return False
    return True


def _possible_counts(seen: RoundSeen, gpu_type: str) -> list[int]:
    """Return the numbers of GPUs of the configurations on a type: powers of two on a node, and whole nodes."""
    node_sizes = []
    for gpus, type_of_node in zip(seen.gpus_per_node, seen.types, strict=True):
        if type_of_node == gpu_type:
            node_sizes.append(gpus)
    # All nodes of a type count with the size of its largest nodes, as in `configurations`.
    size = max(node_sizes)
    on_one_node = [2**power for power in range(size.bit_length())]
    on_whole_nodes = [num_nodes * size for num_nodes in range(1, node_sizes.count(size) + 1)]
    return on_one_node + on_whole_nodes


def loses_by_restart(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the reason states the true restart factor, and it makes the best configuration worth less.

    If the best configuration does not fit, the best one on idle GPUs counts.
    """
    worth_after_restart = _worth_after_restart(job, reason, seen)
    if worth_after_restart is None:
        return False
    # A job without GPUs has no number `has`, and its worth is 0.
    return worth_after_restart <= _worth(reason, "has", 0.0) * (1 + COST_ROUNDING)


def gains_less_than_it_waits(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job held GPUs, and idle GPUs, times the true restart factor, are worth less than the slowest.

    The slowest configuration is worth 1. The cost of waiting exceeds the cost of that configuration.
    """
    worth_after_restart = _worth_after_restart(job, reason, seen)
    if worth_after_restart is None:
        return False
    return job.gpus_before > 0 and worth_after_restart < 1.0


def _worth_after_restart(job: JobSeen, reason: Reason, seen: RoundSeen) -> float | None:
    """Return the worth of the configuration that the job could get after a restart; None if the reason is not true."""
    age = seen.time - job.submit_time
    time_without_restarts = max(age - job.num_restarts * job.delay, 0.0)
    factor = time_without_restarts / (age + job.delay)
    stated_factor = reason.numbers.get("restart_factor", inf)
    if abs(stated_factor - factor) > ROUNDING:
        return None
    # Under this kind the best configuration fits on idle GPUs. Otherwise it does not, and another one is named.
    role = "best" if reason.kind.name == _NAME_OF_RESTART_NOT_WORTH else "idle"
    return _worth(reason, role, inf) * factor


def _worth(reason: Reason, role: str, default: float) -> float:
    """Return the worth of the configuration that a reason names in a role; `default` if it names none."""
    for name, worth in reason.numbers.items():
        if name.startswith(f"{role} "):
            return worth
    return default


_HAS = "[has?The job has {has:label}, worth {has:.3g}|The job has no GPUs]"

_WORTH = " A configuration is worth its speed over that of the slowest configuration of the job."

_MOST = (
    "[most_gpus? (at most {most_gpus:GPU}[gang=1?, the number that it needs|most_gpus>=largest?, the most that the "
    "nodes "
    "offer|doubles?, because it may now use at most {limit}: a job starts with its fewest GPUs, {fewest_gpus}, and may "
    "then use at most twice as many as it had, up to the limits of its user and of its batch size|limit?, because its "
    "user and its batch size allow at most {limit}])]"
)
"""Part of a sentence: the largest number of GPUs that a job may have, and why."""

_MINIMISED = "the sum of the costs of all jobs, which the policy minimises"

_RIVAL = (
    "[must_stay=1? It restarts there, so it keeps these GPUs."
    f"|rival_saving? This job lowers {_MINIMISED}, by {{saving:.2f}}. Of the waiting jobs, {{first}} would lower it "
    "most, by {rival_saving:.2f} with {rival_gpus:GPU}[rival_type? of type {rival_type:label}]"
    "[rival_saving=saving?: of equal choices, the solver takes any].]"
)
"""Sentence on the waiting job that would save most with the GPUs of a job."""

_UNITS = dict.fromkeys(("most_gpus", "fewest_gpus", "largest", "limit", "rival_gpus", "rival_type"), "GPUs")

BEST_CONFIGURATION = ReasonKind(
    "best-configuration",
    f"{_HAS}. No configuration that it may have now is worth more{_MOST}.{_WORTH}{_RIVAL}",
    _UNITS,
    meaning="A job has the best configuration.",
    excuses_running=has_largest_configuration,
)
RESTART_NOT_WORTH = ReasonKind(
    _NAME_OF_RESTART_NOT_WORTH,
    f"{_HAS}[is_best=1?, and {{best:.3g}} without the restart. This is the best configuration that it may have "
    f"now{_MOST}"
    "|. {best:label} would be worth {best:.3g}, but the restart would leave only {restart_factor:.2f} of that]."
    f"{_WORTH}{_RIVAL}",
    _UNITS,
    meaning="A better configuration is not worth a restart.",
    excuses_waiting=gains_less_than_it_waits,
    excuses_running=loses_by_restart,
)
LOST_CONFIGURATION = ReasonKind(
    "lost-configuration",
    f"{_HAS}. With {{best:label}}, worth {{best:.3g}}, it would lower {_MINIMISED}, by {{saving:.2f}}[has? more]. "
    "[gpus_free=0?No GPU|{gpus_free:GPU}][free_type? of type {free_type:label}] "
    "[gpus_free<=1?is|are] idle, and the other jobs together lower the sum more with the "
    "rest[: of them, {first} lowers it least per GPU, by {holder_saving:.2f} with {holder_gpus:GPU}]."
    "[ {idle:label} would fit on idle GPUs and be worth {idle:.3g}, but a restart would leave only "
    f"{{restart_factor:.2f}} of that, which lowers the sum no more than what the job has.]{_WORTH}",
    {"gpus_free": "GPUs", "free_type": "GPUs", "holder_gpus": "GPUs"},
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
