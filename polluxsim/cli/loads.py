"""The commands that make workloads and traces: drawn, generated, or mapped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from polluxsim.applications.folder import ProfileFolder
from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.workloads.bursts import HOUR
from polluxsim.workloads.mapping import MappedTrace
from polluxsim.workloads.philly_figures import PHILLY_GPUS
from polluxsim.workloads.philly_like import PhillyLike, PhillyLikeReplay
from polluxsim.workloads.replay_like import ReplayLike, write_replay
from polluxsim.workloads.sampling import PhillySample
from polluxsim.workloads.selection import Selection
from polluxsim.workloads.workload import write_workload

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.workload import Workload

SAMPLED_OPTIONS = ("jobs",)
REPLAY_OPTIONS = ("start", "rate", "heartbeat")


class _Source(Protocol):
    """Whatever makes a workload."""

    def load(self, profiles: Mapping[str, Profile]) -> Workload: ...


def sample_workload(options: Namespace) -> int:
    """Draw a workload from the Philly trace and write it."""
    source = PhillySample(str(options.trace), options.jobs, tuned=not options.realistic, seed=options.seed)
    return _write_drawn(source, options)


def map_trace(options: Namespace) -> int:
    """Map a trace to a workload, write it, and print what was left out."""
    _check_name(options.output, ".csv")
    # A rule in a module beside the user can be named, as it could be with `python -m`.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    statuses = None if "any" in (options.status or ()) else tuple(options.status or ("completed",))
    select = Selection(options.start, options.hours, options.min_duration, options.max_gpu_hours, statuses)
    source = MappedTrace(str(options.trace), options.rule, not options.realistic, options.seed, select)
    workload, report = source.map(_profiles(options))
    _write(workload, options.output)
    print(report.as_text())
    return 0


def generate_load(options: Namespace) -> int:
    """Draw a load by the statistics of the Philly trace and write it as a workload or as a trace."""
    is_trace = options.output.suffix == ".parquet"
    kind = options.kind or ("replay" if is_trace else "sampled")
    for name in SAMPLED_OPTIONS if kind == "replay" else REPLAY_OPTIONS:
        if getattr(options, name) is not None:
            raise InvalidConfigError(f"--{name} is given, allowed with --kind {kind} is to leave it out")
    names = ("hours", "seed", *(REPLAY_OPTIONS if kind == "replay" else SAMPLED_OPTIONS))
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if is_trace:
        return _generate_trace(kind, given, options)
    if kind == "replay":
        return _write_drawn(PhillyLikeReplay(tuned=not options.realistic, **given), options)
    if "jobs" in given:
        given["num_jobs"] = given.pop("jobs")
    return _write_drawn(PhillyLike(tuned=not options.realistic, **given), options)


def _generate_trace(kind: str, given: Mapping[str, Any], options: Namespace) -> int:
    output: Path = options.output
    if kind != "replay":
        raise InvalidInputError(f"{output}: a sampled load is a workload, allowed is a name that ends in .csv")
    if options.realistic or options.profiles is not None:
        raise InvalidConfigError("--realistic and --profiles are for workloads (.csv): a trace has no applications")
    source = ReplayLike(**given)
    _make_folder(output)
    jobs = write_replay(source, output)
    gpu_hours = float((jobs.durations * jobs.gpus).sum()) / HOUR
    print(
        f"{output}: {len(jobs.times)} jobs in {source.hours} h, {gpu_hours:.0f} GPU-hours, "
        f"{gpu_hours / source.hours / PHILLY_GPUS:.0%} of Philly's {PHILLY_GPUS} GPUs"
    )
    return 0


def _write_drawn(source: _Source, options: Namespace) -> int:
    _check_name(options.output, ".csv")
    workload = source.load(_profiles(options))
    _write(workload, options.output)
    return 0


def _profiles(options: Namespace) -> Mapping[str, Profile]:
    return ProfileFolder(None if options.profiles is None else str(options.profiles)).load()


def _write(workload: Workload, output: Path) -> None:
    _make_folder(output)
    write_workload(workload, output)
    print(f"{output}: {len(workload.jobs)} jobs")


def _check_name(output: Path, suffix: str) -> None:
    if output.suffix != suffix:
        raise InvalidInputError(f"{output}: allowed is the name of a file that ends in {suffix}")


def _make_folder(output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
