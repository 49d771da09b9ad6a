"""A task in a folder: its worlds, limits and references, and the held-out worlds that only the evaluator reads.

The worlds are drawn from the seed of the task. The held-out worlds come from a random key, so that nobody can draw them
again from the seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import spearmanr

from polluxsim.common.errors import InvalidInputError, short
from polluxsim.common.files import atomic_write
from polluxsim.policies.guest.faults import GIB, ProcessLimits
from polluxsim.run.workers import as_finished, num_cores, workers
from polluxsim.studies.evolution.programs import mean_jcts_of, random_program
from polluxsim.studies.evolution.worlds import INITIAL, REFERENCES, TaskWorld, drawn, judged

TASK_FILE = "task.yaml"
HELD_OUT_FILE = "held_out.yaml"
"""Files of a task; only the evaluator reads the second one."""

SHORT, FULL, HELD_OUT = "short", "full", "held-out"
STAGES = (SHORT, FULL, HELD_OUT)

PROGRAMS_STREAM = 0xE702  # number of the random stream of the programs that choose the short worlds

MOST_DRAWN = 40  # worlds are drawn up to this multiple of the wanted number

Progress = Callable[[int, int, str], object]  # is told how much is done, of which total, and a note


@dataclass(frozen=True)
class Size:
    """How many worlds a task has, and how it chooses the short ones."""

    full: int = 12  # worlds of the full stage
    held_out: int = 12  # worlds that programs are not developed on
    short: int = 3  # worlds of the short stage
    programs: int = 40  # random programs whose full scores the short worlds agree with
    checks: int = 40  # worlds of `check` in the short stage


@dataclass(frozen=True)
class StageLimits:
    """The longest time of each stage [s]."""

    short: float = 120.0
    full: float = 240.0  # also of the held-out stage

    def of(self, stage: str) -> float:
        """Return the longest time of a stage [s]."""
        return self.short if stage == SHORT else self.full


@dataclass(frozen=True)
class Task:
    """The worlds of a task, and the limits of programs.

    Attributes
    ----------
    worlds
        Worlds of the full stage.
    short
        Places of the short worlds among them.
    held_out
        Worlds of the held-out stage; empty if they were not read.
    checks
        Number of the worlds of `check`.
    """

    worlds: tuple[TaskWorld, ...]
    short: tuple[int, ...]
    held_out: tuple[TaskWorld, ...] = ()
    checks: int = 40
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    stage_limits: StageLimits = field(default_factory=StageLimits)

    def worlds_of(self, stage: str) -> tuple[TaskWorld, ...]:
        """Return the worlds of a stage."""
        if stage == SHORT:
            return tuple(self.worlds[place] for place in self.short)
        if stage == FULL:
            return self.worlds
        return self.held_out

    def score_of(self, reference: str, stage: str) -> float:
        """Return the score of a reference policy in a stage."""
        values = []
        for world in self.worlds_of(stage):
            assert world.mean_jct is not None
            values.append(world.mean_jct[reference])
        return combined(self.worlds_of(stage), values)


def combined(worlds: Sequence[TaskWorld], values: Sequence[float]) -> float:
    """Return the score of the mean JCT in each of some worlds: the geometric mean of bound / mean JCT, in (0, 1]."""
    logs = [log(world.bound / value) for world, value in zip(worlds, values, strict=True)]
    # Rounding can make an optimal mean JCT a little smaller than its bound.
    return min(1.0, exp(sum(logs) / len(logs)))


def make_task(seed: int, size: Size, progress: Progress, count: int | None = None) -> tuple[Task, int]:
    """Return a new task, and the key of its held-out worlds.

    Parameters
    ----------
    seed
        Number from which the worlds are drawn, apart from the held-out worlds.
    size
        Numbers of worlds, and of the programs that choose the short ones.
    progress
        Function that is told how much is done.
    count
        Number of processes; by default one for each core.

    Raises
    ------
    InvalidInputError
        If too few worlds have references that differ.
    """
    key = secrets.randbits(64)
    processes = count or num_cores()
    with workers(processes) as pool:
        total = size.full + size.held_out + size.programs
        done = 0

        def advance(note: str) -> None:
            nonlocal done
            done += 1
            progress(done, total, note)

        worlds = _useful_worlds(pool, seed, size.full, processes, lambda: advance("worlds"))
        held_out = _useful_worlds(pool, key, size.held_out, processes, lambda: advance("held-out worlds"))
        rng = np.random.default_rng([PROGRAMS_STREAM, seed])
        sources = [random_program(rng) for _ in range(size.programs)]
        tasks = ((number, mean_jcts_of, (source, worlds)) for number, source in enumerate(sources))
        scores: dict[int, list[float]] = {}
        for number, future in as_finished(pool, tasks, processes):
            scores[number] = future.result()
            advance("programs")
    table = np.array([scores[number] for number in range(size.programs)])
    task = Task(worlds, best_part(worlds, table, size.short), held_out, size.checks)
    return task, key


def _useful_worlds(
    pool: Any, key: int, wanted: int, processes: int, advance: Callable[[], object]
) -> tuple[TaskWorld, ...]:
    """Return the first drawn worlds in which the references differ enough.

    Raise InvalidInputError if too few of the first `MOST_DRAWN` times as many worlds are of this kind.
    """
    candidates = enumerate(drawn(key))

    def tasks() -> Iterator[tuple[int, Callable[..., Any], tuple[Any, ...]]]:
        for number, world in candidates:
            if len(useful) >= wanted or number >= MOST_DRAWN * wanted:
                return
            yield number, judged, (world,)

    useful: dict[int, TaskWorld] = {}
    for number, future in as_finished(pool, tasks(), processes):
        world = future.result()
        if world is not None:
            useful[number] = world
            if len(useful) <= wanted:
                advance()
    if len(useful) < wanted:
        raise InvalidInputError(f"only {len(useful)} of {wanted} worlds have references that differ; use another seed")
    # Processes finish in any order, so the worlds with the lowest numbers are those of each run.
    return tuple(useful[number] for number in sorted(useful)[:wanted])


def best_part(worlds: Sequence[TaskWorld], table: np.ndarray, count: int) -> tuple[int, ...]:
    """Return the places of the `count` worlds in which scores rank programs most like the scores in all worlds.

    `table` has the mean JCTs of programs, shape (programs, worlds) [s].
    """
    bounds = np.array([world.bound for world in worlds])
    logs = np.log(bounds / table)
    full = logs.mean(axis=1)
    agreement = {}
    # All combinations are tried: there are 220 for 3 of 12 worlds.
    for places in combinations(range(len(worlds)), count):
        agreement[places] = float(spearmanr(logs[:, places].mean(axis=1), full).statistic)
    return max(agreement, key=lambda places: agreement[places])


def write_task(folder: Path, task: Task, seed: int, key: int) -> None:
    """Write a task into a folder that exists. Only the user may read the file with the held-out worlds."""
    limits = task.limits
    references = {}
    for name in REFERENCES:
        references[name] = {SHORT: task.score_of(name, SHORT), FULL: task.score_of(name, FULL)}
    content = {
        "seed": seed,
        "limits": {
            "decision": limits.decision,
            "start": limits.start,
            "memory_gib": limits.memory / GIB,
            SHORT: task.stage_limits.short,
            FULL: task.stage_limits.full,
        },
        "initial": INITIAL,
        "references": references,
        "checks": task.checks,
        "short": list(task.short),
        "worlds": [world.as_plain() for world in task.worlds],
    }
    hidden = {"key": key, "worlds": [world.as_plain() for world in task.held_out]}
    comment = "# A task for programs that write policies, by 'polluxsim evolve init'. Times are in seconds.\n"
    secret = (
        "# Only the evaluator reads this file. A program that was developed on these worlds has no held-out score.\n"
    )
    for name, text, values in ((TASK_FILE, comment, content), (HELD_OUT_FILE, secret, hidden)):
        with atomic_write(folder / name) as path:
            path.write_text(text + yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    (folder / HELD_OUT_FILE).chmod(0o600)


def read_task(folder: Path, *, with_held_out: bool = False) -> Task:
    """Return the task of a folder, without its held-out worlds unless they are asked for.

    Raise InvalidInputError if a file that is read is missing or broken.
    """
    content = _content(folder / TASK_FILE)
    try:
        limits = content["limits"]
        task = Task(
            worlds=_worlds(content),
            short=tuple(int(place) for place in content["short"]),
            checks=int(content["checks"]),
            limits=ProcessLimits(float(limits["decision"]), float(limits["start"]), int(limits["memory_gib"] * GIB)),
            stage_limits=StageLimits(float(limits[SHORT]), float(limits[FULL])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _broken(folder / TASK_FILE, error) from None
    if with_held_out:
        hidden = _content(folder / HELD_OUT_FILE)
        try:
            task = replace(task, held_out=_worlds(hidden))
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(folder / HELD_OUT_FILE, error) from None
    return task


def _content(path: Path) -> Mapping[str, Any]:
    """Return the content of a file of a task. Raise InvalidInputError if it is missing or no mapping."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        advice = "make a task with 'polluxsim evolve init -o DIR'"
        raise InvalidInputError(f"{path.parent} is no task, because it has no {path.name}; {advice}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _broken(path, error) from None
    if not isinstance(content, dict):
        raise _broken(path, TypeError("no mapping"))
    return content


def _worlds(content: Mapping[str, Any]) -> tuple[TaskWorld, ...]:
    """Return the worlds that the content of a file states."""
    return tuple(TaskWorld(**world) for world in content["worlds"])


def _broken(path: Path, error: Exception) -> InvalidInputError:
    """Return the error for a file that cannot be understood."""
    return InvalidInputError(
        f"{path} is broken ({short(str(error))}); make the task again with 'polluxsim evolve init'"
    )
