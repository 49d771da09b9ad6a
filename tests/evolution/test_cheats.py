"""Programs that cheat, fail or hang: each has the score 0 with a line or limit, or the score that it has without it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from polluxsim.policies.guest.faults import ProcessLimits
from polluxsim.studies.evolution.feedback import artifacts_of
from polluxsim.studies.evolution.scoring import ERROR, SUCCESS, TIMEOUT, score
from polluxsim.studies.evolution.task import FULL, HELD_OUT, SHORT, StageLimits, Task
from polluxsim.studies.evolution.worlds import TaskWorld, drawn, judged

PROGRAM = """import dataclasses

import numpy as np

from polluxsim.policies.contract.view import Decision, Traits
from polluxsim.policies.tools.gangs import gangs_by


class Candidate:
    traits = Traits(slices_time=True)

    def allocate(self, view, rng):
{body}
        interval = view.time + 1800
        return gangs_by(view, lambda job: job.attained_service, lambda job: {{}}, lasts_until=interval)
"""
LINE = 13  # of the body


def program(body: str = "pass") -> str:
    return PROGRAM.format(body="\n".join(f"        {line}" for line in body.splitlines()))


def with_top(lines: str) -> str:
    return f"{lines}\n{program()}"


CHEATS = {
    "the oracle": (program("view.jobs[0].oracle.time_left(1)"), f"line {LINE}: job.oracle"),
    "the oracle by another name": (program("getattr(view.jobs[0], 'ora' + 'cle')"), f"line {LINE}: "),
    "a private attribute": (program("view.jobs[0]._active"), f"line {LINE}: the private attribute _active"),
    "a private attribute by name": (program("getattr(view.jobs[0], '_active')"), f"line {LINE}: "),
    "the garbage collector": (with_top("import gc"), "line 1: the program may not import gc"),
    "frames": (program("try:\n    1 / 0\nexcept Exception as error:\n    error.__traceback__"), "__traceback__"),
    "the workload": (with_top("from polluxsim.workloads.philly import PhillyLikeRigid"), "line 1: the program may not"),
    "a file": (program("open('/etc/hostname')"), f"line {LINE}: open is not open to programs"),
    "a file by NumPy": (program("np.load('/etc/hostname')"), f"line {LINE}: the program opens a file"),
    "a file in a net of errors": (
        program("try:\n    np.load('/etc/hostname')\nexcept BaseException:\n    pass"), f"line {LINE + 1}: the program"
    ),
    "a job": (program("object.__setattr__(view.jobs[0], 'attained_service', 0.0)"), f"line {LINE}: the attribute __"),
    "delays": (program("return Decision({}, delays={view.jobs[0].job_id: 0.0})"), "Decision.delays is not open"),
    "rejected jobs": (program("return Decision({}, rejected=[view.jobs[0].job_id])"), "Decision.rejected is not open"),
    "known throughput": (program().replace("slices_time", "known_throughput"), "trait known_throughput is not open"),
    "a loop": (program("while True:\n    pass"), "within its limit of 0.5 s"),
    "memory": (program("bytearray(8 * 2**30)"), f"line {LINE}: the program needs more memory than its limit of 1 GiB"),
    "a process": (
        program("getattr(getattr(dataclasses, 's' + 'ys').modules['o' + 's'], 'fork')()"),
        f"line {LINE}: the program starts a process",
    ),
    "an end after a printed score": (
        program("print('{\"combined_score\": 1.0}')\nraise SystemExit(0)"), f"line {LINE + 1}: SystemExit"
    ),
    "an end of the process": (with_top("import os\nos._exit(0)"), "line 1: the program may not import os"),
    "broken Python": ("class Candidate(", "line 1: the program is no valid Python"),
    "no class": ("x = 1", "line 1: the program has no class Candidate"),
    "too many GPUs": (program("return {view.jobs[0].job_id: ((0, 100),)}"), "over-allocat"),
    "no answer": (program("return 3"), "invalid"),
    "jobs that starve": (program("return {}"), "idle GPUs"),
}  # fmt: skip

WITHOUT_EFFECT = {
    "a function of NumPy": program("np.sort = np.argsort = np.mean = None"),
    "memory of an earlier world": "SEEN = []\n" + program(
        "SEEN.append(view.time)\nif len(SEEN) > 1 and SEEN[-1] < SEEN[-2]:\n    return {}"
    ),
    "a changed class": program("Traits.adaptive = True"),
}  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Task:
    """A task of two worlds, of which one is short and held out as well."""
    worlds: list[TaskWorld] = []
    for number in (6, 27):
        (world,) = itertools.islice(drawn(1), number, number + 1)
        useful = judged(world)
        assert useful is not None
        worlds.append(useful)
    return Task(
        tuple(worlds),
        (1,),
        (worlds[1],),
        checks=2,
        limits=ProcessLimits(decision=0.5),
        stage_limits=StageLimits(60, 90),
    )


@pytest.fixture(scope="module")
def honest(task: Task) -> float:
    return score(program(), task, SHORT).value


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_has_no_score_and_a_sentence_with_the_line_or_limit(task: Task, name: str) -> None:
    source, sentence = CHEATS[name]
    reached = score(source, task, SHORT)
    assert reached.value == 0.0
    assert reached.status == (TIMEOUT if name == "a loop" else ERROR)
    assert len(reached.faults) == 1
    assert sentence in reached.faults[0]
    texts = artifacts_of(reached)
    assert all(len(text) <= 2000 for text in texts.values())
    assert sentence in texts["feedback"]


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_change_in_the_process_has_no_effect(task: Task, honest: float, name: str) -> None:
    assert score(WITHOUT_EFFECT[name], task, SHORT).value == pytest.approx(honest, rel=1e-9)


def test_the_next_program_has_its_score(task: Task, honest: float) -> None:
    for name in ("a job", "a file in a net of errors", "an end after a printed score", "a process"):
        score(CHEATS[name][0], task, SHORT)
    assert honest > 0
    assert score(program(), task, SHORT).value == honest


def test_a_stage_ends_the_program_itself(task: Task) -> None:
    slow = program("sum(range(3_000_000))")
    late = score(slow, replace(task, stage_limits=StageLimits(60, 2)), FULL)
    assert (late.status, late.value) == (TIMEOUT, 0.0)
    assert "the time of the stage" in late.faults[0]


def test_only_score_and_gain_come_back_from_held_out_worlds(task: Task) -> None:
    reached = score(program(), task, HELD_OUT)
    assert reached.status == SUCCESS
