"""Runs of an experiment, with the user's overrides on those that have the setting; checked before any start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import OmegaConf

from polluxsim.errors import InvalidConfigError
from polluxsim.paper.experiment import CONFIG_DIRS
from polluxsim.run.building import build
from polluxsim.run.composing import without_hydra
from polluxsim.run.execution import resolved
from polluxsim.run.identity import key_of
from polluxsim.sweeps.plan import composer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from omegaconf import DictConfig

    from polluxsim.paper.experiment import Arm, Experiment
    from polluxsim.paper.inputs import Inputs

GROUPS = ("cluster", "engine", "policy", "profiles", "workload")


class Planned(NamedTuple):
    """One run to make."""

    arm: Arm
    workload: str
    seed: int
    overrides: tuple[str, ...]  # what it is composed from
    config: Mapping[str, Any]  # resolved
    key: str  # what it is recognised by


class Plan(NamedTuple):
    """The runs that an experiment needs."""

    experiment: Experiment
    runs: Sequence[Planned]


def planned(experiment: Experiment, inputs: Inputs, seeds: int, extra: Sequence[str] = ()) -> Plan:
    """Return the runs of an experiment, with seeds as `Inputs.units` counts them.

    Each of the user's overrides in `extra` reaches the arms that have its setting; an arm's own go before them. It is
    an `InvalidConfigError` if a run cannot be composed, or its parts cannot be built.
    """
    composing, name = composer(CONFIG_DIRS), f"+{experiment.group}={experiment.name}"
    units = {
        arm: inputs.own(arm) if experiment.own_workload else inputs.units(arm, seeds, experiment.workloads)
        for arm in experiment.arms
    }
    runs = list[Planned]()
    for arm, own_units in units.items():
        own, reaching = inputs.placed(arm), list[str]()
        for number, unit in enumerate(own_units):
            if number == 0:
                config = composing.compose([name, *unit.overrides, *own])
                reaching = [text for text in extra if reaches(text, config)]
            overrides = (name, *unit.overrides, *reaching, *own)
            if number or reaching:
                config = composing.compose(overrides)
            if number == 0:
                for group in GROUPS:
                    build(config, group)
            values = resolved(without_hydra(config))
            runs.append(Planned(arm, unit.workload, unit.seed, overrides, values, key_of(values)))
    return Plan(experiment, runs)


def reaches(override: str, config: DictConfig) -> bool:
    """Return whether a configuration has the setting of an override; what adds or deletes one is for all.

    >>> config = OmegaConf.create({"policy": {"p": -1.0, "seed": None}})
    >>> [reaches(text, config) for text in ("policy.p=1", "policy.seed=1", "policy.search=exact", "+policy.x=1")]
    [True, True, False, True]
    """
    name = override.partition("=")[0]
    if name.startswith(("+", "~")):
        return True
    *groups, last = name.split(".")
    for group in groups:
        if not OmegaConf.is_dict(config) or group not in config:
            return False
        config = config[group]
    return OmegaConf.is_dict(config) and last in config


def check_reached(extra: Sequence[str], plans: Iterable[Plan]) -> None:
    """Raise `InvalidConfigError` where one of the user's overrides reaches no run."""
    reached = {text for plan in plans for run in plan.runs for text in run.overrides}
    if lost := [text for text in extra if text not in reached]:
        raise InvalidConfigError(f"{lost[0]}: no run of what was named has the setting {lost[0].partition('=')[0]!r}")
