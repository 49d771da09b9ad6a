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

SETTINGS = ("title", "measure", "draw", "arms", "axis", "workloads", "own_workload", "published_runs", "note")


@dataclass(frozen=True)
class Arm:
    """One way of running the workloads, compared with others.

    Parameters
    ----------
    name
        As the published values name it.
    load
        Jobs, as a multiple of the paper's 160.
    request
        What jobs ask for: "tuned" GPUs and batch sizes, or "realistic" ones.
    overrides
        Hydra overrides that make it.
    """

    name: str
    load: float = 1.0
    request: str = "tuned"
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Parameters
    ----------
    name
        Of its file.
    title
        What it shows.
    measure, draw
        Names of functions in `measures` and `drawings`.
    published
        The published values.
    arms
        The runs it needs on every workload, none if it needs none.
    axis
        The setting that its arms have several values of, "" for none.
    workloads
        Which of the published workloads it is on, None for all there are.
    own_workload
        Whether its file chooses the workload, instead of the published or generated ones.
    published_runs
        Folder in the artifact by arm, of those whose runs were published or made again with it.
    note
        What has to be known to read its table.
    """

    name: str
    title: str
    measure: tuple[str, ...]
    draw: tuple[str, ...]
    published: tuple[Published, ...]
    arms: tuple[Arm, ...] = ()
    axis: str = ""
    workloads: tuple[str, ...] | None = None
    own_workload: bool = False
    published_runs: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def has_seeds(self) -> bool:
        """Return whether it runs on workloads or seeds that there can be more of."""
        return bool(self.arms) and not self.own_workload


def names() -> list[str]:
    """Return the names of all experiments that come with polluxsim, tables and figures first."""
    found = (path.stem for path in (shipped("experiments") / "experiment").glob("*.yaml"))
    with_values = [name for name in found if (shipped("experiments") / "experiment" / f"{name}.csv").is_file()]
    return sorted(with_values, key=lambda name: (not name.startswith("table"), not name.startswith("fig"), name))


def read_experiment(name: str) -> Experiment:
    """Compose an experiment's configuration and read its published values.

    Raises
    ------
    InvalidConfigError
        If there is no such experiment, or its file is not what it should be.
    InvalidInputError
        If its published values are not.
    """
    if name not in names():
        raise InvalidConfigError(f"there is no experiment {name!r}, allowed are {', '.join(names())} and all")
    section = _section(name)
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
        published=tuple(read_published(shipped("experiments") / "experiment" / f"{name}.csv")),
        arms=tuple(_arms(section.get("arms") or {}, axis)),
        axis=next(iter(axis), ""),
        workloads=None if workloads is None else tuple(map(str, workloads)),
        own_workload=bool(section.get("own_workload", False)),
        published_runs=section.get("published_runs") or {},
        note=section.get("note", ""),
    )


def _section(name: str) -> dict[str, Any]:
    config = composer(CONFIG_DIRS).compose([f"+experiment={name}"])
    return cast("dict[str, Any]", OmegaConf.to_container(config[NOT_THE_RUNS], resolve=True))


def _arms(arms: Mapping[str, Mapping[str, Any]], axis: Mapping[str, Sequence[Any]]) -> Iterable[Arm]:
    """Yield every arm at every value of the axis, named "ARM VALUE" where there is one."""
    points = [(key, value) for key, values in axis.items() for value in values] or [("", None)]
    for (name, settings), (key, value) in product(arms.items(), points):
        chosen = {**settings, **({key: value} if key else {})}
        label = f"{name} {value:g}" if key else name
        load, request = float(chosen.pop("load", 1.0)), str(chosen.pop("request", "tuned"))
        yield Arm(label, load, request, tuple(f"{setting}={chosen[setting]}" for setting in chosen))
