"""The descent of a fork: its ancestors and its edits, as run.json stores them for a replay of the fork."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from omegaconf import DictConfig, OmegaConf

from polluxsim.errors import InvalidInputError, short
from polluxsim.models.planned import BatchPlan
from polluxsim.models.stages import Stages
from polluxsim.run.building import check_classes
from polluxsim.run.claim import DESCENT
from polluxsim.shipped import with_present_names
from polluxsim.storage import RUN_FILE
from polluxsim.workloads.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.storage import Run
    from polluxsim.types import JobId

BEFORE = "before"
"""Part of a descent: the `config` of the parent, and the `descent` of a parent that is a fork itself."""


class Edits(NamedTuple):
    """The changes that a fork makes, besides those of its settings.

    Attributes
    ----------
    time
        Time of the round from which on they apply [s].
    lost_nodes
        Nodes that go down for good. They include the nodes that a smaller cluster lacks.
    without
        Jobs that are cancelled, or do not arrive.
    added
        Additional jobs, in the order in which they were given.
    seed
        New seed of the policy's random generator; None continues the generator.
    new_policy
        Whether a new policy takes over. The settings of both policies may be equal.
    """

    time: float
    lost_nodes: tuple[int, ...] = ()
    without: tuple[JobId, ...] = ()
    added: tuple[Job, ...] = ()
    seed: int | None = None
    new_policy: bool = False


class Generation(NamedTuple):
    """A fork, as a replay needs it: its edits, and the settings from then on."""

    edits: Edits
    config: DictConfig


def recorded(parent: Run, config: DictConfig, edits: Edits) -> dict[str, Any]:
    """Return the `descent` of a fork for run.json, as plain values.

    Parameters
    ----------
    parent
        The run that was forked.
    config
        The settings of the parent.
    edits
        The edits of the fork.
    """
    before = {"config": OmegaConf.to_container(config)}
    if DESCENT in parent.info:
        before[DESCENT] = parent.info[DESCENT]
    return {
        "run": parent.name,
        "key": parent.info.get("key"),
        "time": edits.time,
        "lost_nodes": list(edits.lost_nodes),
        "without": list(edits.without),
        "added": [job.job_id for job in edits.added],
        "added_jobs": {job.job_id: fields_of(job) for job in edits.added},
        "seed": edits.seed,
        "new_policy": edits.new_policy,
        BEFORE: before,
    }


def ancestry(run: Run) -> list[Mapping[str, Any]]:
    """Return the `config` and the `descent` of a run and of its ancestors, the run first.

    Raises
    ------
    InvalidInputError
        If an older version of polluxsim wrote the run. It did not store the settings before a fork.
    """
    found = [run.info]
    while (descent := found[-1].get(DESCENT)) is not None:
        if BEFORE not in descent:
            raise InvalidInputError(
                f"{run.name}/{RUN_FILE}: the settings before the fork are missing, because an older polluxsim wrote "
                f"the file; make the fork again from its run {short(descent.get('run'))}"
            )
        found.append(descent[BEFORE])
    return found


def lineage(run: Run) -> tuple[DictConfig, list[Generation]]:
    """Return the settings of the first ancestor of a run, and the forks from it to the run in order of time.

    A run folder is data: only classes that the run may load are imported, and its functions, like metrics, are ignored.

    Raises
    ------
    InvalidInputError
        If run.json does not hold what a replay needs, or names a class that the run may not load.
    """
    source, infos = f"{run.name}/{RUN_FILE}", ancestry(run)
    configs = [_settings(run, source, info.get("config", {})) for info in infos]
    edits = [_edits(source, info[DESCENT]) for info in infos[:-1]]
    if any(earlier.time > later.time for later, earlier in pairwise(edits)):
        raise InvalidInputError(f"{source}: the times of the forks are not in order; make the fork again")
    return configs[-1], [Generation(*pair) for pair in zip(edits, configs, strict=False)][::-1]


def _settings(run: Run, source: str, config: Any) -> DictConfig:
    """Return recorded settings for a replay. Refuse objects of Python, and classes that the run may not load."""
    check_classes(config, source, run.allow_classes)
    if given := [group for group, part in config.items() if isinstance(part, dict) and "object" in part]:
        what = f"its {given[0]} was an object in Python"
        raise InvalidInputError(f"{run.name} cannot be simulated again: {what}; choose the {given[0]} by name")
    for group in ("policy", "cluster"):
        if group not in config:
            raise InvalidInputError(f"{source}: config.{group} is missing; make the run again")
    if not _is_int(config.get("seed")):
        what = f"config.seed is {short(config.get('seed'))}, must be a whole number of at least 0"
        raise InvalidInputError(f"{source}: {what}; make the run again")
    parts = {name: part for name, part in with_present_names(config).items() if name != "metrics"}
    return OmegaConf.create(parts)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def _are(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_one, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "time": (_is_time, "a number of seconds of at least 0"),
    "lost_nodes": (_are(_is_int), "a list of node numbers"),
    "without": (_are(_is_text), "a list of names"),
    "added": (_are(_is_text), "a list of names"),
    "added_jobs": (lambda value: isinstance(value, dict), "a mapping of names to jobs"),
    "seed": (lambda value: value is None or _is_int(value), "null or a whole number of at least 0"),
    "new_policy": (lambda value: isinstance(value, bool), "true or false"),
}
"""What the parts of a descent must be: a check, and the rule in words."""


def _edits(source: str, descent: Mapping[str, Any]) -> Edits:
    """Return the edits that a descent stores."""
    for name, (is_allowed, rule) in _RULES.items():
        if not is_allowed(value := descent.get(name)):
            what = f"descent.{name} is {short(value)}, must be {rule}"
            raise InvalidInputError(f"{source}: {what}; make the fork again")
    added = tuple(_job(source, name, descent["added_jobs"].get(name)) for name in descent["added"])
    nodes, without = tuple(descent["lost_nodes"]), tuple(descent["without"])
    return Edits(descent["time"], nodes, without, added, descent["seed"], descent["new_policy"])


def _job(source: str, name: str, values: object) -> Job:
    """Return an added job; raise an `InvalidInputError` if its values do not make one."""
    try:
        if not isinstance(values, dict):
            raise TypeError(f"must be a mapping, not {short(values)}")
        return job_from(name, values)
    except (InvalidInputError, LookupError, TypeError, ValueError) as error:
        what = f"descent.added_jobs.{name} is no job ({error})"
        raise InvalidInputError(f"{source}: {what}; make the fork again") from None


def fields_of(job: Job) -> dict[str, Any]:
    """Return the fields of a job that differ from their defaults, as plain values. Its name and line are left out.

    >>> fields_of(Job.rigid("a", 60.0, 2, 600.0, user="ada"))["user"]
    'ada'
    """
    found = {}
    for field in fields(Job):
        value = getattr(job, field.name)
        if field.name not in ("job_id", "line") and value != field.default:
            found[field.name] = _plain(value)
    return found


def job_from(name: JobId, values: Mapping[str, Any]) -> Job:
    """Return the job that `fields_of` describes.

    >>> job = Job.rigid("a", 60.0, 2, 600.0, speeds=((1, 0.5), (2, 1.0)))
    >>> job_from("a", fields_of(job)) == job
    True
    """
    found = {key: _frozen(value) for key, value in values.items()}
    if "stages" in found:
        found["stages"] = Stages(*found["stages"])
    if "plan" in found:
        plan = {key: _frozen(value) for key, value in values["plan"].items()}
        speeds = {(gpu_type, size): speed for gpu_type, size, speed in plan["speeds"]}
        found["plan"] = BatchPlan(**plan | {"speeds": speeds})
    return Job(name, **found)


def _plain(value: Any) -> Any:
    """Return a value of a field as JSON can hold it."""
    if isinstance(value, BatchPlan):
        plan = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.name != "speeds"}
        return plan | {"speeds": [[*key, speed] for key, speed in value.speeds.items()]}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _frozen(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
