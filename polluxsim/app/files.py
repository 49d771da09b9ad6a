"""The commands that turn files into other files or into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.analysis.table import comparison
from polluxsim.app.console import console
from polluxsim.errors import InvalidInputError
from polluxsim.metrics.summary import summarise
from polluxsim.storage import RUN_FILE, read_run
from polluxsim.traces.osdi21 import read_profiles
from polluxsim.traces.store import ProfileFolder, write_store
from polluxsim.workloads.sampling import PhillySample
from polluxsim.workloads.workload import write_workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def show_table(folders: Sequence[Path]) -> int:
    """Print runs side by side; a folder of several runs stands for all of them."""
    summaries = {}
    for folder in _runs(folders):
        run = read_run(folder)
        summary = summarise(run.result)
        if summary is None:
            raise InvalidInputError(f"{folder}: a run without jobs has nothing to show")
        name = run.name if run.name not in summaries else str(folder)
        summaries[name] = summary
    console().print(comparison(summaries))
    return 0


def import_profiles(source: Path, destination: Path) -> int:
    """Check the artifact's measurements and write them as Parquet."""
    profiles = read_profiles(source)
    write_store(profiles, destination)
    rows = sum(len(profile.placements) + len(profile.scalability) for profile in profiles.values())
    epochs = sum(len(run) for profile in profiles.values() for run in profile.validations.values())
    print(f"{destination}: {len(profiles)} profiles ({', '.join(profiles)}), {rows} step times, {epochs} epochs")
    return 0


def sample_workload(trace: Path, output: Path, profiles: Path, num_jobs: int, seed: int, *, tuned: bool) -> int:
    """Draw a workload from the Philly trace and write it."""
    if output.suffix != ".csv":
        raise InvalidInputError(f"{output}: allowed is the name of a file that ends in .csv")
    sample = PhillySample(str(trace), num_jobs=num_jobs, tuned=tuned, seed=seed)
    workload = sample.load(ProfileFolder(str(profiles)).load())
    output.parent.mkdir(parents=True, exist_ok=True)
    write_workload(workload, output)
    print(f"{output}: {len(workload.jobs)} jobs")
    return 0


def _runs(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs, with those that hold several in their place."""
    found = []
    for folder in folders:
        inside = sorted(path.parent for path in folder.glob(f"*/{RUN_FILE}"))
        found += [folder] if (folder / RUN_FILE).is_file() or not inside else inside
    return found
