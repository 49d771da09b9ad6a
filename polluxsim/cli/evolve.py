"""`polluxsim evolve`: tasks for programs that write policies, their scores, and a random search.

`init` writes a task, `score` scores a program in it, and `search` looks for a good program without a language model.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.options import add_option, add_output
from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from polluxsim.studies.evolution.scoring import Score
    from polluxsim.studies.evolution.task import Task

NO = 1  # exit status if the program is refused, faulty or late

BOTH = "both"  # the short stage, and then the full stage


def add_evolve_init(parser: ArgumentParser) -> None:
    parser.description = (
        "Write a task for programs that write policies into a folder: an initial program, an evaluator for OpenEvolve "
        "and SkyDiscover, and worlds with the bound on the best possible schedule. The held-out worlds are drawn from "
        "a random key, and only the evaluator reads them. This takes some minutes."
    )
    parser.epilog = "Example: polluxsim evolve init -o task"
    add_output(parser, "folder of the task, which must not exist yet", required=True)
    add_option(parser, "seed", default=1, note="of the worlds that are not held out")
    add_option(parser, "workers")
    parser.set_defaults(action=_init)


def add_evolve_score(parser: ArgumentParser) -> None:
    parser.description = (
        "Score a program in a task. The score is the geometric mean over worlds of bound / mean JCT, in (0, 1]. The "
        "program runs in processes of its own, and sees views as values only. A program that is refused, faulty or "
        "late has the score 0. Of held-out worlds, only the score and the gain are printed."
    )
    parser.epilog = "Example: polluxsim evolve score task/initial_program.py --task task --stage short"
    parser.add_argument("program", metavar="PROGRAM", type=Path, help="Python file with the class Candidate")
    add_option(parser, "task", required=True)
    add_option(parser, "stage", choices=("short", "full", "both", "held-out"), default=BOTH)
    parser.set_defaults(action=_score)


def add_evolve_search(parser: ArgumentParser) -> None:
    parser.description = (
        "Search for a program without a language model: random orders of jobs, and changes of the best ones. Print the "
        "rank correlations between the stages over the first 40 programs, and the gain of the best program over the "
        "initial program. Equal seeds give equal results."
    )
    parser.epilog = "Example: polluxsim evolve search --task task --candidates 200 -o best.py"
    add_option(parser, "task", required=True)
    add_option(parser, "candidates", default=200)
    add_option(parser, "seed", default=1, note="of the search")
    add_option(parser, "workers")
    add_output(parser, "file for the best program", "best.py")
    parser.set_defaults(action=_search)


def _init(options: Namespace) -> int:
    """Write a task, print the scores of the references, and return 0."""
    from polluxsim.common.progress_line import progress_line
    from polluxsim.studies.evolution.files import write_files
    from polluxsim.studies.evolution.task import FULL, HELD_OUT, SHORT, STAGES, Size, make_task, write_task
    from polluxsim.studies.evolution.worlds import REFERENCES

    folder: Path = options.output
    # A task that is replaced would make its earlier scores incomparable.
    if folder.exists():
        raise InvalidConfigError(f"--output is {folder}, which exists already; give the folder of a new task")
    size = Size()
    total = size.full + size.held_out + size.programs
    with progress_line("task", total) as show:
        task, key = make_task(options.seed, size, show, options.workers)
    # The folder is made last, so that an interrupted command leaves none.
    folder.mkdir(parents=True)
    write_task(folder, task, options.seed, key)
    write_files(folder, task)
    titles = {SHORT: "short", FULL: "full", HELD_OUT: "held-out"}
    print(f"{folder}: {len(task.worlds)} worlds, {len(task.short)} of them short, and {len(task.held_out)} held out")
    print(f"{'score':<12}{''.join(f'{titles[stage]:>10}' for stage in STAGES)}")
    for name in REFERENCES:
        scores = "".join(f"{task.score_of(name, stage):10.4f}" for stage in STAGES)
        print(f"{name:<12}{scores}")
    return 0


def _score(options: Namespace) -> int:
    """Print the score of a program as JSON, and return 1 if the program is refused, faulty or late, else 0."""
    from polluxsim.studies.evolution.feedback import artifacts_of
    from polluxsim.studies.evolution.scoring import as_plain, read_program
    from polluxsim.studies.evolution.task import HELD_OUT, read_task

    source = read_program(options.program)
    # Who scores in the other stages need not have the held-out worlds.
    task = read_task(options.task, with_held_out=options.stage == HELD_OUT)
    reached = _scored(source, task, options.stage)
    print(json.dumps(as_plain(reached, artifacts_of(reached)), indent=2))
    return NO if reached.faults else 0


def _scored(source: str, task: Task, stage: str) -> Score:
    """Return the score in a stage; for both, that of the full stage unless the program is faulty in the short one."""
    from polluxsim.studies.evolution.scoring import score
    from polluxsim.studies.evolution.task import FULL, SHORT

    if stage != BOTH:
        return score(source, task, stage)
    reached = score(source, task, SHORT)
    return reached if reached.faults else score(source, task, FULL)


def _search(options: Namespace) -> int:
    """Search for a program, write the best one, print its scores, and return 0."""
    from polluxsim.common.files import atomic_write
    from polluxsim.common.progress_line import progress_line
    from polluxsim.studies.evolution.searching import search
    from polluxsim.studies.evolution.task import STAGES, read_task

    task = read_task(options.task, with_held_out=True)
    with progress_line("programs", options.candidates) as show:
        best = search(task, options.candidates, options.seed, show, options.workers)
    with atomic_write(options.output) as path:
        path.write_text(best.source, encoding="utf-8")
    for (one, other), value in best.correlations.items():
        print(f"rank correlation of the {one} and the {other} score over the first {best.first} programs: {value:.3f}")
    print(f"best of {options.candidates} programs: {options.output}")
    for stage in STAGES:
        print(f"{stage:>9}: score {best.scores[stage]:.4f}, gain over the initial program {best.gains[stage]:+.1%}")
    if not best.correlations:
        print("polluxsim: fewer than 3 programs have no rank correlation", file=sys.stderr)
    return 0
