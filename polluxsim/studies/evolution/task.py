"""A task in a folder: its worlds, limits and references, and the worlds that only the evaluator reads."""

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
from polluxsim.policies.guest.faults import GIB, Limits
from polluxsim.run.workers import as_finished, num_cores, workers
from polluxsim.studies.evolution.programs import random_program, score_in
from polluxsim.studies.evolution.worlds import INITIAL, REFERENCES, World, drawn, judged

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
    full: float = 240.0

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

    worlds: tuple[World, ...]
    short: tuple[int, ...]
    held_out: tuple[World, ...] = ()
    checks: int = 40
    limits: Limits = field(default_factory=Limits)
    stage_limits: StageLimits = field(default_factory=StageLimits)

    def worlds_of(self, stage: str) -> tuple[World, ...]:
        """Return the worlds of a stage."""
        if stage == SHORT:
            return tuple(self.worlds[place] for place in self.short)
        return self.worlds if stage == FULL else self.held_out

    def score_of(self, reference: str, stage: str) -> float:
        """Return the score of a reference policy in a stage."""
        values = []
        for world in self.worlds_of(stage):
            assert world.mean_jct is not None
            values.append(world.mean_jct[reference])
        return combined(self.worlds_of(stage), values)


def combined(worlds: Sequence[World], values: Sequence[float]) -> float:
    """Return the score of mean JCTs: the geometric mean of bound / mean JCT, in (0, 1]."""
    logs = [log(world.bound / value) for world, value in zip(worlds, values, strict=True)]
    return min(1.0, exp(sum(logs) / len(logs)))


def make_task(seed: int, size: Size, progress: Progress, count: int | None = None) -> tuple[Task, int]:
    """Return a new task, and the key of its held-out worlds.

    Parameters
    ----------
    seed
        Number that determines the worlds, apart from the held-out worlds.
    count
        Number of processes; by default one for each core.
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
        tasks = ((number, score_in, (source, worlds)) for number, source in enumerate(sources))
        scores: dict[int, list[float]] = {}
        for number, future in as_finished(pool, tasks, processes):
            scores[number] = future.result()
            advance("programs")
    table = np.array([scores[number] for number in range(size.programs)])
    task = Task(worlds, best_part(worlds, table, size.short), held_out, size.checks)
    return task, key


def _useful_worlds(
    pool: Any, key: int, wanted: int, processes: int, advance: Callable[[], object]
) -> tuple[World, ...]:
    """Return the first drawn worlds in which the references differ enough."""
    candidates = enumerate(drawn(key))

    def tasks() -> Iterator[tuple[int, Callable[..., Any], tuple[Any, ...]]]:
        for number, world in candidates:
            if len(useful) >= wanted or number >= MOST_DRAWN * wanted:
                return
            yield number, judged, (world,)

    useful: dict[int, World] = {}
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


def best_part(worlds: Sequence[World], table: np.ndarray, count: int) -> tuple[int, ...]:
    """Return the places of the worlds whose scores agree best with those in all worlds.

    `table` has the mean JCTs of programs, shape (programs, worlds) [s].
    """
    bounds = np.array([world.bound for world in worlds])
    logs = np.log(bounds / table)
    full = logs.mean(axis=1)
    agreement = {}
    for places in combinations(range(len(worlds)), count):
        agreement[places] = float(spearmanr(logs[:, places].mean(axis=1), full).statistic)
    return max(agreement, key=lambda places: agreement[places])


def write_task(folder: Path, task: Task, seed: int, key: int) -> None:
    """Write a task into a folder."""
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
    """Return the task of a folder. Raise InvalidInputError if a file is missing or broken."""
    content = _content(folder / TASK_FILE)
    try:
        limits = content["limits"]
        task = Task(
            worlds=_worlds(content),
            short=tuple(int(place) for place in content["short"]),
            checks=int(content["checks"]),
            limits=Limits(float(limits["decision"]), float(limits["start"]), int(limits["memory_gib"] * GIB)),
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


def _worlds(content: Mapping[str, Any]) -> tuple[World, ...]:
    return tuple(World(**world) for world in content["worlds"])


def _broken(path: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is broken ({short(str(error))}); make the task again with 'polluxsim evolve init'"
    )
