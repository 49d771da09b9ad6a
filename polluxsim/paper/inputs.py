"""Which workloads and profiles an experiment runs on: those that come with polluxsim, or measured ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.applications.folder import ProfileFolder
from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.paper.experiment import DATA
from polluxsim.run.overrides import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from polluxsim.models.profile import Profile
    from polluxsim.paper.experiment import Arm

JOBS = 160
"""Jobs of a workload at load 1. Source: Pollux (OSDI '21), §5.1."""


class Unit(NamedTuple):
    """One workload with one seed: what the arms of an experiment are paired by."""

    workload: str
    seed: int
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Inputs:
    """What is run."""

    profiles: Path | None = None  # folder of profiles; None for the cards that come with polluxsim
    # folder with the sets of published workloads (workloads, workloads-0.5, …); None for generated ones
    workloads: Path | None = None
    jobs: int = JOBS  # jobs of a generated workload at load 1
    # folder with other systems' data (rigid, hetero, …); None where only the paper's numbers are asked for
    data: Path | None = None

    def __post_init__(self) -> None:
        if self.workloads is not None and not (self.workloads / "workloads").is_dir():
            raise InvalidInputError(f"{self.workloads}: needed is the folder that holds workloads/workload-N.csv")
        if self.jobs < 1:
            raise InvalidInputError(f"--jobs is {self.jobs}, allowed is a whole number ≥ 1")

    @property
    def is_measured(self) -> bool:
        """Return whether the workloads are the published ones."""
        return self.workloads is not None

    def must_match(self, *, needs_workloads: bool) -> bool:
        """Return whether numbers have to be the published ones: both profiles and workloads are the user's."""
        return self.profiles is not None and (self.is_measured or not needs_workloads)

    def __str__(self) -> str:
        profiles = "profile cards" if self.profiles is None else str(self.profiles)
        return f"{profiles}, {'generated workloads' if self.workloads is None else self.workloads}"

    def load_profiles(self) -> Mapping[str, Profile]:
        """Read the profiles."""
        return _profiles_in(None if self.profiles is None else str(self.profiles))

    def units(self, arm: Arm, seeds: int, only: Sequence[str] | None) -> list[Unit]:
        """Return the workloads of an arm, with their seeds; none where the folder has no such workload.

        There are so many generated workloads, each with a seed of its own, or runs of each published one. Of the
        published workloads, `only` says which; None is all.
        """
        common = self._profiles()
        if self.workloads is None:
            return [Unit(str(seed), seed, (*common, *self._generated(arm, seed))) for seed in range(1, seeds + 1)]
        return [
            Unit(number, seed, (*common, "workload=file", f"workload.path={_quoted(path)}", f"seed={seed}"))
            for number, path in self.files(arm).items()
            if only is None or number in only
            for seed in range(seeds)
        ]

    def own(self, arm: Arm) -> list[Unit]:
        """Return the one unit of an experiment that has a workload of its own; none where its data are not at hand."""
        if not (paths := arm.data):
            return [Unit("", 0, (*self._profiles(), "seed=0"))]
        if self.data is None:
            raise InvalidConfigError(f"needed is the folder that holds {paths[0]}: --data DIR, or POLLUXSIM_DATA")
        return [Unit("", 0, ("seed=0",))] if all((self.data / path).exists() for path in paths) else []

    def placed(self, arm: Arm) -> list[str]:
        """Return an arm's overrides with the folder of data in its place."""
        return [self._placed(*text.partition(f"={DATA}/")) for text in arm.overrides]

    def _placed(self, name: str, mark: str, path: str) -> str:
        return f"{name}={_quoted(self.data / path)}" if mark and self.data else name

    def _profiles(self) -> tuple[str, ...]:
        return () if self.profiles is None else (f"profiles.path={_quoted(self.profiles)}",)

    def files(self, arm: Arm) -> dict[str, Path]:
        """Return an arm's published workloads by number; none where requests are to be smaller."""
        if self.workloads is None or arm.largest_request:
            return {}
        at_load = "workloads" if arm.load == 1 else f"workloads-{arm.load:.1f}"
        folder = self.workloads / (at_load if arm.request == "tuned" else f"workloads-{arm.request}")
        paths = folder.glob("workload-*.csv")
        numbered = {found[1]: path for path in paths if (found := re.fullmatch(r"workload-(\d+)", path.stem))}
        return dict(sorted(numbered.items(), key=lambda pair: int(pair[0])))

    def _generated(self, arm: Arm, seed: int) -> tuple[str, ...]:
        return (
            "workload=philly-like",
            f"workload.num_jobs={max(round(arm.load * self.jobs), 1)}",
            f"workload.tuned={str(arm.request == 'tuned').lower()}",
            *([f"workload.largest_request={arm.largest_request}"] if arm.largest_request else []),
            f"seed={seed}",
        )


def _quoted(path: Path) -> str:
    return quoted(str(path.resolve()))


@cache
def _profiles_in(folder: str | None) -> Mapping[str, Profile]:
    return ProfileFolder(folder).load()
