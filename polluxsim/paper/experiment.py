"""An experiment as its file describes it: the runs it needs, and what is measured and drawn of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from omegaconf import OmegaConf

from polluxsim.errors import InvalidConfigError
from polluxsim.paper.published import Published, read_published
from polluxsim.run.execution import NOT_THE_RUNS
from polluxsim.shipped import shipped
from polluxsim.sweeps.plan import composer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CONFIG_DIRS = (shipped("experiments"),)

OTHERS = "conformance"
"""Group of the files of other systems' published numbers; those of the paper are in `experiment`."""

DATA = "{data}"
"""Stands in an arm's overrides for the folder of other systems' data."""

SETTINGS = ("title", "system", "measure", "draw", "arms", "axis", "workloads", "own_workload", "published_runs", "note")


@dataclass(frozen=True)
class Arm:
    """One way of running the workloads, compared with others."""

    name: str  # as the published values name it
    load: float = 1.0  # jobs, as a multiple of the paper's 160
    request: str = "tuned"  # what jobs ask for: "tuned" GPUs and batch sizes, or "realistic" ones
    # GPUs that jobs of generated workloads ask for at most, None for any number; published ones ask for what they do
    largest_request: int | None = None
    is_long: bool = False  # whether it takes minutes
    overrides: tuple[str, ...] = ()  # Hydra overrides that make it

    @property
    def data(self) -> list[str]:
        """Return what it needs of other systems' data: paths in their folder."""
        return [path for text in self.overrides if (path := text.partition(f"={DATA}/")[2])]


@dataclass(frozen=True)
class Experiment:
    """One table or figure."""

    name: str
    title: str
    measure: tuple[str, ...]  # names of functions in `measures`
    draw: tuple[str, ...]  # and in `drawings`
    published: tuple[Published, ...]
    arms: tuple[Arm, ...] = ()  # the runs it needs on every workload, none if it needs none
    axis: str = ""  # the setting that its arms have several values of, "" for none
    workloads: tuple[str, ...] | None = None  # which of the published workloads it is on, None for all there are
    own_workload: bool = False  # whether its file chooses the workload, instead of the published or generated ones
    # by arm: the folder of its published run in the artifact, or a file of completion times in the data folder
    published_runs: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  # what has to be known to read its table
    system: str = "Pollux"  # whose numbers they are

    @property
    def group(self) -> str:
        """Return the configuration group that its file is in."""
        return group_of(self.name)

    @property
    def needs_data(self) -> bool:
        """Return whether it runs on another system's data."""
        return any(arm.data for arm in self.arms)

    @property
    def has_seeds(self) -> bool:
        """Return whether it runs on workloads or seeds that there can be more of."""
        return bool(self.arms) and not self.own_workload


def names() -> list[str]:
    """Return the names of the paper's tables and figures, and of what else is on its runs."""
    found = _in_group("experiment")
    return sorted(found, key=lambda name: (not name.startswith("table"), not name.startswith("fig"), name))


def systems() -> list[str]:
    """Return the names of the experiments on other systems' published numbers."""
    return sorted(_in_group(OTHERS))


def group_of(name: str) -> str:
    """Return the configuration group of an experiment's file."""
    return OTHERS if name in systems() else "experiment"


def _in_group(group: str) -> list[str]:
    """Return the experiments of a group: its files that have published values beside them."""
    found = (shipped("experiments") / group).glob("*.yaml")
    return [path.stem for path in found if path.with_suffix(".csv").is_file()]


def read_experiment(name: str) -> Experiment:
    """Compose an experiment's configuration and read its published values; an error if these are not right."""
    if name not in (known := [*names(), *systems()]):
        raise InvalidConfigError(f"there is no experiment {name!r}, allowed are {', '.join(known)} and all")
    config = composer(CONFIG_DIRS).compose([f"+{group_of(name)}={name}"])
    section = cast("dict[str, Any]", OmegaConf.to_container(config[NOT_THE_RUNS], resolve=True))
    if unknown := sorted(set(section) - set(SETTINGS)):
        raise InvalidConfigError(
            f"{name}.yaml: {NOT_THE_RUNS}.{unknown[0]} is unknown, allowed are {', '.join(SETTINGS)}"
        )
    workloads, axis = section.get("workloads"), section.get("axis") or {}
    return Experiment(
        name,
        title=section["title"],
        measure=tuple(section["measure"]),
        draw=tuple(section["draw"]),
        published=tuple(read_published(shipped("experiments") / group_of(name) / f"{name}.csv")),
        arms=tuple(_arms(section.get("arms") or {}, axis)),
        axis=next(iter(axis), ""),
        workloads=None if workloads is None else tuple(map(str, workloads)),
        own_workload=bool(section.get("own_workload", False)),
        published_runs=section.get("published_runs") or {},
        note=section.get("note", ""),
        system=section.get("system", "Pollux"),
    )


def _arms(arms: Mapping[str, Mapping[str, Any]], axis: Mapping[str, Sequence[Any]]) -> Iterable[Arm]:
    """Yield every arm at every value of the axis, named "ARM VALUE" where there is one."""
    points = [(key, value) for key, values in axis.items() for value in values] or [("", None)]
    for (name, settings), (key, value) in product(arms.items(), points):
        chosen = {**settings, **({key: value} if key else {})}
        label = f"{name} {value:g}" if key else name
        load, request = float(chosen.pop("load", 1.0)), str(chosen.pop("request", "tuned"))
        largest, is_long = chosen.pop("largest_request", None), bool(chosen.pop("long", False))
        yield Arm(label, load, request, largest, is_long, tuple(f"{setting}={chosen[setting]}" for setting in chosen))
