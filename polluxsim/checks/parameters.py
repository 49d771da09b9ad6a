"""Parameters of a policy that are not its defaults, drawn from its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.utils import get_object

from polluxsim.errors import InvalidConfigError
from polluxsim.gpu_types import ANY

if TYPE_CHECKING:
    from polluxsim.checks.worlds import World
    from polluxsim.run.named_policy import NamedPolicy

STREAM = 0xDA7A
"""Number of the random stream of parameters."""

SHARE, EACH = 0.35, 0.5
"""Share of the worlds with drawn parameters, and share of the parameters that such a world draws."""

FACTORS = (0.1, 0.5, 2.0, 10.0)
"""Factors of a number."""

NO_OWNER = "none"
"""Queue of the jobs without a queue."""

KEPT = {"idle_newcomers"}
"""Parameters that keep their defaults: with `idle_newcomers`, GPUs stay idle until the next computation of shares."""


def with_parameters(world: World, guest: NamedPolicy, number: int) -> World:
    """Return the world with parameters of the policy. A number always gives the same parameters."""
    rng = np.random.default_rng([STREAM, number])
    draws_numbers = rng.random() < SHARE
    for name, value in _defaults(guest).items():
        if name in OWNERS and isinstance(value, Mapping):
            drawn = OWNERS[name](world, rng)
        elif draws_numbers and name not in KEPT and rng.random() < EACH:
            drawn = _other(value, rng)
        else:
            continue
        if drawn not in (value, None):
            wider = replace(world, parameters=(*world.parameters, (name, drawn)))
            world = wider if _is_allowed(guest, wider) else world
    return world


def _defaults(guest: NamedPolicy) -> Mapping[str, Any]:
    """Return the parameters of a policy with their defaults; of a user's class, those of its constructor."""
    if guest.module is None:
        return {name: value for name, value in guest.settings.items() if name != "_target_"}
    signature = inspect.signature(get_object(guest.settings["_target_"]))
    given = {name for name in guest.settings if name != "_target_"}
    return {name: each.default for name, each in signature.parameters.items() if name not in given}


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
    may_use = getattr(policy, "may_use", None)
    types = set(world.types) or {ANY.name}
    return may_use is None or all(any(may_use(job, name) for name in types) for job in world.jobs)


def _quotas(world: World, rng: np.random.Generator) -> dict[str, Any]:
    """Return quotas of the queues: parts of the GPUs, of each type if there are several."""
    if not world.types:
        return _parts(_queues(world), sum(world.nodes), rng)
    by_type = {
        name: _parts(_queues(world), sum(world.cluster.by_type[name]), rng) for name in world.cluster.by_type
    }
    return {queue: {name: parts[queue] for name, parts in by_type.items()} for queue in _queues(world)}


def _parts(queues: list[str], gpus: int, rng: np.random.Generator) -> dict[str, int]:
    cuts = sorted(rng.integers(0, gpus + 1, size=len(queues)).tolist())
    return {queue: after - before for queue, before, after in zip(queues, [0, *cuts], cuts, strict=False)}


def _weights(world: World, rng: np.random.Generator) -> dict[str, float]:
    return {queue: float(rng.integers(1, 5)) for queue in _queues(world)}


def _shares(world: World, rng: np.random.Generator) -> dict[str, float]:
    users = dict.fromkeys(job.user for job in world.jobs if job.user)
    return {user: float(rng.integers(1, 5)) for user in users}


def _queues(world: World) -> list[str]:
    return list(dict.fromkeys(job.queue or NO_OWNER for job in world.jobs))


OWNERS = {"gpus": _quotas, "weights": _weights, "shares": _shares}
"""Parameters by queue or user, which are drawn in every world."""
