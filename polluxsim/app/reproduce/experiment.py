"""An experiment as its file describes it: the runs it needs and the module that measures and draws them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, cast

from omegaconf import OmegaConf

from polluxsim.analysis.published import Published, read_published
from polluxsim.app.execution import NOT_THE_RUNS
from polluxsim.app.sweep.plan import composer
from polluxsim.errors import InvalidConfigError
from polluxsim.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.figure import Figure

    from polluxsim.analysis.comparison import Sample
    from polluxsim.app.reproduce.runs import Runs

CONFIG_DIRS = (shipped("experiments"),)

SETTINGS = ("title", "module", "arms", "axis", "workloads", "own_workload")


class Module(Protocol):
    """What an experiment's module offers."""

    def measure(self, runs: Runs) -> Iterable[Sample]:
        """Return all samples, from finished runs and the profiles."""
        ...

    def draw(self, runs: Runs) -> Mapping[str, Figure]:
        """Return figures by the name of their file, none where a table says it all."""
        ...


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

    @property
    def is_plain(self) -> bool:
        """Return whether nothing but the policy is set: such runs have been published job by job."""
        return len(self.overrides) == 1 and self.overrides[0].startswith("policy=")

    @property
    def policy(self) -> str:
        """Return the policy's name, "" if the arm leaves it to the experiment."""
        return next((text.removeprefix("policy=") for text in self.overrides if text.startswith("policy=")), "")


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Parameters
    ----------
    name
        Of its file.
    title
        What it shows.
    module
        Dotted name of its module.
    arms
        The runs it needs on every workload, none if it needs none.
    workloads
        Which of the published workloads it is on, None for all there are.
    published
        The published values.
    own_workload
        Whether its file chooses the workload, instead of the published or generated ones.
    """

    name: str
    title: str
    module: str
    arms: tuple[Arm, ...]
    workloads: tuple[str, ...] | None
    published: tuple[Published, ...]
    own_workload: bool = False

    @property
    def has_seeds(self) -> bool:
        """Return whether it runs on workloads or seeds that there can be more of."""
        return bool(self.arms) and not self.own_workload

    def load_module(self) -> Module:
        """Import the module."""
        return cast("Module", import_module(self.module))


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
    workloads = section.get("workloads")
    return Experiment(
        name,
        title=section["title"],
        module=section["module"],
        arms=tuple(_arms(section.get("arms") or {}, section.get("axis") or {})),
        workloads=None if workloads is None else tuple(map(str, workloads)),
        own_workload=bool(section.get("own_workload", False)),
        published=tuple(read_published(shipped("experiments") / "experiment" / f"{name}.csv")),
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
