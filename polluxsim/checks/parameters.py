"""Draw random parameters for a policy, of the kinds of its defaults."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polluxsim.checks.worlds import World
from polluxsim.common.errors import InvalidConfigError
from polluxsim.policies.contract.policy import QuotaRules
from polluxsim.policies.tools.ledger import NO_QUEUE
from polluxsim.run.building import get_object
from polluxsim.run.named_policies import NamedPolicy
from polluxsim.workloads.workload import Job

STREAM = 0xDA7A  # number of the random stream of parameters

# Share of the worlds with random parameters, and share of parameters that are random in these worlds.
RANDOM_WORLDS = 0.35
RANDOM_PARAMETERS = 0.5

LIMITED_QUEUES = 0.3  # share of the queues that have a limit of borrowing, or of lending
FACTORS = (0.1, 0.5, 2.0, 10.0)  # a random number is its default times one of these factors

# Parameters that keep their defaults: with `idle_newcomers`, GPUs stay idle until the next computation of shares.
KEPT = {"idle_newcomers"}

# Parameters that are times or GPU times, with 1, and rates, with −1. In a world whose clock has a factor, a parameter
# is multiplied by this power of the factor.
TIMES = {
    "grow_after": 1,
    "half_life": 1,
    "idle_time": 1,
    "interval": 1,
    "lease": 1,
    "longest": 1,
    "lookahead": 1,
    "max_age": 1,
    "min_run_time": 1,
    "quantum": 1,
    "queue_limits": 1,
    "queue_threshold": 1,
    "reset_interval": 1,
    "resume_time": 1,
    "shortest": 1,
    "time_slice": 1,
    "weight_of_longest": -1,
}

# Parameters that are words, with their values.
CHOICES = {"within_queue": ("lower-priority", "never"), "reclaim": ("any", "lower-priority", "never")}


def with_parameters(world: World, guest: NamedPolicy, number: int) -> World:
    """Return the world with random parameters of the policy. `number` is the seed.

    Parameters that the policy refuses, or with which a job could never start, keep their defaults.
    """
    rng = np.random.default_rng([STREAM, number])
    is_random = rng.random() < RANDOM_WORLDS
    for name, value in _defaults(guest).items():
        if name in BY_OWNER and isinstance(value, Mapping):
            drawn: object = BY_OWNER[name](world, rng)
        elif is_random and name in CHOICES:
            drawn = str(rng.choice(CHOICES[name]))
        elif is_random and name not in KEPT and rng.random() < RANDOM_PARAMETERS:
            drawn = _other(value, rng)
        else:
            continue
        if drawn in (value, None):
            continue
        changed = replace(world, parameters=(*world.parameters, (name, drawn)))
        if _is_allowed(guest, changed):
            world = changed
    return world


def by_clock(world: World, guest: NamedPolicy) -> dict[str, Any]:
    """Return the parameters of a policy in a world. Those that are times are multiplied by the factor of the clock."""
    parameters = dict(world.parameters)
    if world.clock == 1.0:
        return parameters
    # Defaults that are times change too, so they become parameters of the world.
    times: dict[str, Any] = {}
    for name, default in {**_defaults(guest), **parameters}.items():
        slower = _slower(name, default, world.clock)
        if slower != default:
            times[name] = slower
    return parameters | times


def _slower(name: str, value: object, clock: float) -> object:
    """Return a parameter on a clock with a factor: times in lists, and in settings of parts, change as well."""
    if isinstance(value, Mapping):
        return {key: _slower(str(key), part, clock) for key, part in value.items()}
    if name not in TIMES or value is None:
        return value
    if isinstance(value, Sequence):
        return [part * clock ** TIMES[name] for part in value]
    assert isinstance(value, int | float)
    return value * clock ** TIMES[name]


def _defaults(guest: NamedPolicy) -> Mapping[str, Any]:
    """Return the parameters of a policy with their defaults. A user's class states them in its constructor."""
    if guest.module is None:
        return {name: value for name, value in guest.settings.items() if name != "_target_"}
    signature = inspect.signature(get_object(guest.settings["_target_"]))
    set_names = {name for name in guest.settings if name != "_target_"}
    return {name: parameter.default for name, parameter in signature.parameters.items() if name not in set_names}


def _other(value: object, rng: np.random.Generator) -> object:
    """Return another value of the type of the default, or None if there is no rule for the type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return int(rng.integers(1, max(value, 1) + 1))
    if isinstance(value, float):
        return value * float(rng.choice(FACTORS))
    return None


def _is_allowed(guest: NamedPolicy, world: World) -> bool:
    """Return whether the policy accepts the parameters, and every job can start under them."""
    try:
        policy = guest.make(parameters=dict(world.parameters))
    except InvalidConfigError:
        return False
    rules = policy.quota_rules
    return rules is None or all(_can_start(rules, job, world) for job in world.jobs)


def _can_start(rules: QuotaRules, job: Job, world: World) -> bool:
    """Return whether a job can start on each GPU type to which the policy may send it, and on one at least."""
    gpus = {name: sum(sizes) for name, sizes in world.cluster.by_type.items()}
    if world.least_nodes is not None:  # the policy may remove the other nodes; these worlds have one GPU type
        gpus = {name: sum(world.nodes[: world.least_nodes]) for name in gpus}
    types = [name for name in job.gpu_types or gpus if rules.can_ever_hold(job, name)]
    return bool(types) and all(rules.can_ever_hold(job, name, gpus[name]) for name in types)


def _quotas(world: World, rng: np.random.Generator) -> dict[str, Any]:
    """Return quotas of the queues: parts of the GPUs, of each type if there are several."""
    queues = _queues(world)
    if not world.types:
        return _parts(queues, sum(world.nodes), rng)
    gpus_of_queue: dict[str, dict[str, int]] = {queue: {} for queue in queues}
    for name, sizes in world.cluster.by_type.items():
        for queue, part in _parts(queues, sum(sizes), rng).items():
            gpus_of_queue[queue][name] = part
    return gpus_of_queue


def _parts(queues: list[str], gpus: int, rng: np.random.Generator) -> dict[str, int]:
    """Return a part of the GPUs for each queue. The rest of the GPUs belongs to no queue."""
    cuts = sorted(rng.integers(0, gpus + 1, size=len(queues)).tolist())
    return {queue: after - before for queue, before, after in zip(queues, [0, *cuts], cuts, strict=False)}


def _weights(world: World, rng: np.random.Generator) -> dict[str, float]:
    """Return weights of the queues."""
    return {queue: float(rng.integers(1, 5)) for queue in _queues(world)}


def _shares(world: World, rng: np.random.Generator) -> dict[str, float]:
    """Return shares of the users."""
    users = dict.fromkeys(job.user for job in world.jobs if job.user)
    return {user: float(rng.integers(1, 5)) for user in users}


def _queues(world: World) -> list[str]:
    return list(dict.fromkeys(job.queue or NO_QUEUE for job in world.jobs))


def _limits(world: World, rng: np.random.Generator) -> dict[str, Any]:
    """Return limits of GPUs for some of the queues, of each type if there are several."""
    limits: dict[str, Any] = {}
    for queue in _queues(world):
        if rng.random() < LIMITED_QUEUES:
            by_type = {name: int(rng.integers(0, sum(gpus) + 1)) for name, gpus in world.cluster.by_type.items()}
            if world.types:
                limits[queue] = by_type
            else:
                limits[queue] = sum(by_type.values())  # of the only type
    return limits


# Functions that draw the parameters with a value for each queue or user. These are random in every world.
BY_OWNER = {
    "gpus": _quotas, "borrowing_limits": _limits, "lending_limits": _limits, "weights": _weights, "shares": _shares,
}  # fmt: skip
