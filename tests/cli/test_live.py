"""The live view: on a pseudo-terminal as a user meets it, and every frame within its terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from drawn import draws, failing
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.api import simulating
from polluxsim.cli import live
from polluxsim.cli.live import Pace, Picture
from polluxsim.cli.main import main
from polluxsim.common.durations import UNITS
from polluxsim.common.shipped import shipped
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import RoundRecord
from polluxsim.workloads.workload import Job, Workload

COMMON = ["workload=philly-like", "workload.num_jobs=20", "cluster.num_nodes=4", "seed=2"]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"


class Terminal:
    """A process whose standard error is a terminal of a given size."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 100) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        command = [sys.executable, "-m", "polluxsim", *arguments]
        # A session of its own, whose terminal this becomes, so that its keyboard is this process's.
        own = {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0)}
        self.process = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, cwd=folder, **own)
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = b""

    def read_until(self, found: Callable[[bytes], bool], seconds: float = 120.0) -> bytes:
        end = time.monotonic() + seconds
        while not found(self.seen) and time.monotonic() < end:
            if not select.select([self.master], [], [], 0.1)[0]:
                if self.process.poll() is not None:
                    break
                continue
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:  # the other end is closed
                break
        return self.seen

    def finish(self) -> tuple[int, bytes, bytes]:
        self.read_until(lambda _: False)
        printed = self.process.stdout.read()
        self.process.stdout.close()
        assert termios.tcgetattr(self.slave) == self.modes  # as it was
        os.close(self.slave)
        os.close(self.master)
        return self.process.wait(60), printed, self.seen


def test_a_refusal_breaks_between_words_on_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "run", "policy=tirsias", columns=80)
    status, _, seen = terminal.finish()
    lines = seen.decode().splitlines()
    assert status == 2
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).startswith("polluxsim: policy=tirsias is unknown, must be one of afs, allox, antman, auto")
    names = {path.stem for path in (shipped("configs") / "policy").glob("*.yaml")}
    listed = " ".join(lines).partition("must be one of ")[2].partition(" and ")[0].split(", ")
    assert set(listed) <= names


def test_a_live_run_shows_the_cluster_and_leaves_the_same_files(tmp_path: Path) -> None:
    quiet = ["run", "policy=tiresias", *COMMON, f"hydra.run.dir={tmp_path / 'quiet'}"]
    assert main(quiet) == 0
    status, printed, seen = Terminal(
        tmp_path, "run", "policy=tiresias", "--live", *COMMON, "hydra.run.dir=live"
    ).finish()
    assert status == 0, seen
    assert b"average JCT" in printed
    assert seen.count(ENTER) == seen.count(LEAVE) == 1
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    between = seen[seen.index(ENTER) : seen.index(LEAVE)]
    for words in (b"simulated", b"GPUs in use", b"average JCT so far", b"queue", b"starting; the first run"):
        assert words in between
    stayed = seen[seen.index(LEAVE) :]
    assert b"20/20 jobs ended   0 active" in stayed
    assert b"0/16 GPUs in use" in stayed
    assert b"100 % done" in stayed
    assert b"space" not in stayed
    for name in ("jobs", "rounds", "allocations", "reasons"):
        file = f"{name}.parquet"
        assert (tmp_path / "live" / file).read_bytes() == (tmp_path / "quiet" / file).read_bytes()


SLOW_POLICY = """
import time
from dataclasses import replace
from polluxsim.policies.ordered.classic import Fifo
class Slow(Fifo):
    def allocate(self, view, rng):
        time.sleep({seconds})
        return replace(super().allocate(view, rng), valid_until=0.0)
"""


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("seconds", [0.05, 30])  # the next round is soon; and too far away to wait for
def test_ctrl_c_gives_the_terminal_back(tmp_path: Path, seconds: float) -> None:
    (tmp_path / "mine.py").write_text(SLOW_POLICY.format(seconds=seconds))
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "slow.yaml").write_text("_target_: mine.Slow\n")
    terminal = Terminal(tmp_path, "run", "--live", "--config-dir", "conf", "policy=slow", *COMMON, "hydra.run.dir=out")
    terminal.read_until(lambda seen: (b"simulated" if seconds < 1 else b"starting") in seen)
    time.sleep(0.3)
    os.kill(terminal.process.pid, signal.SIGINT)
    status, printed, seen = terminal.finish()
    assert status == 130
    assert printed == b""
    assert seen.count(LEAVE) >= 1
    assert b"interrupted, nothing was written" in seen[seen.rindex(LEAVE) :]
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    assert not (tmp_path / "out" / "run.json").exists()


def test_keys_pause_the_run_and_end_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW_POLICY.format(seconds=0.02))
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "slow.yaml").write_text("_target_: mine.Slow\n")
    terminal = Terminal(tmp_path, "run", "--live", "--config-dir", "conf", "policy=slow", *COMMON, "hydra.run.dir=out")
    terminal.read_until(lambda seen: b"space: pause" in seen and b"simulated" in seen)
    os.write(terminal.master, b" ")
    terminal.read_until(lambda seen: b"paused" in seen)
    told = terminal.read_until(lambda _: False, seconds=0.5)  # the rest of that frame
    assert terminal.read_until(lambda seen: len(seen) > len(told), seconds=0.7) == told  # it stands still
    os.write(terminal.master, b" ")
    terminal.read_until(lambda seen: b"simulated" in seen[len(told) :])
    os.write(terminal.master, b"q")
    status, printed, seen = terminal.finish()
    assert (status, printed) == (130, b"")
    assert b"interrupted, nothing was written" in seen[seen.rindex(LEAVE) :]
    assert not (tmp_path / "out" / "run.json").exists()


def test_without_a_terminal_it_says_so_and_runs_quietly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polluxsim", "run", "policy=fifo", *COMMON, "--live", "hydra.run.dir=out"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    assert (
        done.stderr
        == "polluxsim: --live shows nothing, because standard error is no terminal; run the command in a terminal\n"
    )
    assert "average JCT" in done.stdout
    assert (tmp_path / "out" / "run.json").is_file()


def test_a_sweep_is_not_shown_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--live", "-m", "seed=0,1", *COMMON]) == 2
    assert (
        capsys.readouterr().err
        == "polluxsim: run: --live cannot be used with -m, because it shows one run; leave one of them out\n"
    )
    assert list(tmp_path.iterdir()) == []


def frame(picture: Picture, width: int, height: int) -> list[str]:
    """Return the lines of a frame on a terminal of this size."""
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(picture, height=height)
    return captured.get().rstrip("\n").split("\n")


@given(
    st.lists(st.sampled_from([1, 4, 8]), min_size=1, max_size=400),
    st.integers(20, 200),
    st.integers(10, 60),
    st.randoms(use_true_random=False),
)
@draws(40)
def test_every_frame_fits_its_terminal(sizes: list[int], width: int, height: int, random: object) -> None:
    """And shows every GPU in use where it does not say how many nodes it leaves out."""
    cluster = Cluster(tuple(sizes))
    names = [f"a-job-with-a-long-name-{i}" for i in range(40)]
    allocation: dict[str, tuple[tuple[int, int], ...]] = {}
    free = list(sizes)
    for name in names:
        node = random.randrange(len(sizes))  # type: ignore[attr-defined]
        if free[node]:
            taken = random.randint(1, free[node])  # type: ignore[attr-defined]
            allocation[name] = ((node, taken),)
            free[node] -= taken
    used = cluster.num_gpus - sum(free)
    workload = toy_workload(*(toy_job(name) for name in names))
    picture = Picture(workload, cluster)
    run = SimpleNamespace(
        last_round=RoundRecord(60.0, 40, used, 1.0, 1.0),
        allocation=allocation,
        waiting=[name for name in names if name not in allocation],
        num_ended=0,
        num_jobs=40,
        mean_jct=None,
        down=(),
        scenario=SimpleNamespace(can_fail=False),
        shares={},
        start_time=0.0,
    )
    picture.show(run)  # type: ignore[arg-type]  # a run with this very allocation
    lines = frame(picture, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    hidden = next((line for line in lines if "nodes more" in line), None)
    blank = [number for number, line in enumerate([*lines, "", ""]) if not line.strip()]
    grid = "\n".join(lines[blank[0] + 1 : blank[1]])
    blocks = grid.count("█")
    if blocks:
        assert blocks % max(used, 1) == 0
        assert blocks // used in (1, 2, 4, 6)
    elif hidden and len(hidden) < width:
        shown, there = map(int, re.findall(r"(\d+) of (\d+) GPUs", hidden)[0])
        assert 0 <= used - shown <= 2 * len(re.findall("[▀▄]", grid))
        assert there <= cluster.num_gpus


@pytest.mark.parametrize("width", [1, 5, 30])
@pytest.mark.parametrize("height", [1, 2, 6])
def test_a_terminal_too_small_for_the_cluster_does_not_end_the_run(width: int, height: int) -> None:
    picture = Picture(ALL_KNOWN, Cluster((4, 4)))
    simulate(ALL_KNOWN, {"toy": ToyProfile()}, Cluster((4, 4)), Fifo(), watcher=picture.show)
    lines = frame(picture, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_nodes_that_are_down_are_marked() -> None:
    cluster, workload = failing((1, 70.0, 200.0)), toy_workload(toy_job("a", 0, 4), toy_job("b", 0, 4))
    picture, frames = Picture(workload, cluster), {}

    def watch(run: Simulation) -> None:
        picture.show(run)
        frames[run.time] = "\n".join(frame(picture, 100, 30))

    simulate(workload, {"toy": ToyProfile(epochs=(1000.0,))}, cluster, Fifo(), watcher=watch)
    assert "nodes down" not in frames[60.0]
    assert "nodes down: 1" in frames[120.0]
    assert re.search(r"GPU time: useful \d+ %, checkpoint 0 %, .* down [1-9]", frames[max(frames)])
    # The four GPUs of each node are as wide.
    assert frames[120.0].count("×") == frames[60.0].count("█" * 6) // 2 * 6


class OneMore:
    """Has a job follow each of the first three that complete."""

    def __init__(self) -> None:
        self.number = 2

    def after(self, job: Job, time: float) -> list[Job]:
        self.number += 1
        return [toy_job(f"job-{self.number}", time, gpus=1 + self.number % 2)] if self.number < 6 else []


ALL_KNOWN = toy_workload(*(toy_job(f"job-{i}", 50.0 * i, gpus=1 + i % 2) for i in range(6)))
SOME_FOLLOW = Workload(ALL_KNOWN.jobs[:3], new_arrivals=OneMore, num_followers=3)


@pytest.mark.parametrize("workload", [ALL_KNOWN, SOME_FOLLOW])
def test_the_numbers_of_a_frame_are_those_of_the_run(workload: Workload) -> None:
    profiles = {"toy": ToyProfile(seconds=1.0, epochs=(100.0,))}
    cluster = Cluster((2, 1))
    picture = Picture(workload, cluster)
    frames = []

    def watch(run: Simulation) -> None:
        picture.show(run)
        frames.append((run.last_round, "\n".join(frame(picture, 100, 30))))

    result = simulate(workload, profiles, cluster, Fifo(), watcher=watch)
    for record, text in frames:
        done = [job for job in result.job_records if job.completion_time <= record.time]
        assert f"{len(done)}/6 jobs ended   {record.active_jobs} active" in text
        assert f"{record.gpus_in_use}/3 GPUs in use" in text
        if done:
            number, unit = re.search(r"average JCT so far ([\d.]+) (\w+)", text).groups()
            mean = sum(job.jct for job in done) / len(done)
            assert float(number) * dict(UNITS)[unit] == pytest.approx(mean, rel=5e-3)
        waiting = int(re.search(r"queue (\d+)", text)[1])
        assert waiting == record.active_jobs - sum(" job-" in cell for cell in re.findall(r"██ +\d+ job-\d", text))


def test_a_frame_tells_the_rented_nodes_the_time_so_far_and_no_sum_of_unlike_examples() -> None:
    cluster = Cluster.elastic(4, 1, 2, 60.0, 3.0)
    picture = Picture(toy_workload(toy_job("a"), toy_job("b")), cluster)
    for now, nodes, waiting in ((60.0, 1, ["b"]), (120.0, 1, ["b"]), (180.0, 2, [])):
        record = RoundRecord(now, 2, 2, 5000.0, 0.5, nodes=nodes, hourly_cost=3.0 * nodes)
        run = {
            "allocation": {"a": ((0, 2),)},
            "waiting": waiting,
            "num_ended": 1,
            "num_jobs": 2,
            "mean_jct": 60.0,
            "down": (),
            "scenario": SimpleNamespace(can_fail=False),
            "shares": {},
            "start_time": 0.0,
        }
        picture.show(SimpleNamespace(last_round=record, **run))  # type: ignore[arg-type]
    lines = frame(picture, 80, 24)
    text = "\n".join(lines)
    assert "2/4 GPUs in use" in text
    assert "2 nodes, $6.00 an hour" in text
    assert "efficiency 50 %" in text
    assert re.search(r"\d \w+ a second", text)
    assert "left" in text
    assert "goodput" not in text
    assert "5,000" not in text
    (small,) = [line for line in lines if "efficiency ▄" in line]
    gpus, queue = re.search("GPUs in use (.{11})  +queue (.{11})", small).groups()
    assert set(gpus) == {"▂"}  # 2 of 8 all the time
    assert set(queue) == {"█"}  # b waited until the last round
    assert " 2 " not in "".join(lines[lines.index("") + 1 : -3])  # nodes 2 and 3 are not rented


def test_a_notebook_counts_jobs_that_follow_others(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = {"toy": ToyProfile(seconds=1.0, epochs=(100.0,))}
    shown, complete = list[str](), list[str]()
    handle = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(HTML=str, display=lambda first, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(simulating, "_in_notebook", lambda: True)
    monkeypatch.setattr(simulating, "REFRESH", 0.0)
    with simulating.progress_shown(SOME_FOLLOW, Cluster((2, 1)), wanted=True) as watch:
        result = simulate(SOME_FOLLOW, profiles, Cluster((2, 1)), Fifo(), watcher=watch)
    for record in result.round_records:
        done = sum(job.completion_time <= record.time for job in result.job_records)
        complete.append(f"{done} of 6 jobs complete, {record.time / 3600:.1f} h simulated, {record.active_jobs}")
    assert shown
    assert all(any(text in html for text in complete) for html in shown[:-1])


def test_frames_are_few_and_take_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for cost in (0.0005, 0.02):  # a quick terminal and a slow one
        clock = [0.0]
        monkeypatch.setattr(live, "perf_counter", lambda clock=clock: clock[0])
        pace, frames = Pace(), 0
        while clock[0] < 60.0:
            with pace.frame() as is_due:
                if is_due:
                    frames += 1
                    clock[0] += cost
            clock[0] += 0.001
        assert frames <= 10 * 60 + 1
        assert frames >= (500 if cost < 0.001 else 100)
        assert frames * cost <= 0.045 * clock[0]
