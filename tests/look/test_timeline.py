"""The timeline of a run says what the run's tables say, in a form that its viewers accept."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.failures import DrawnFailures, SpotReclaims
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.occupancy import occupancy, stays
from polluxsim.look.run_facts import cluster_of
from polluxsim.look.timeline import CLUSTER_PID, events, write_timeline
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import AllocationRecord
from polluxsim.records.storage import Run, read_run
from polluxsim.workloads.workload import Workload

POLICIES = {
    "fifo": Fifo,
    "tiresias": lambda: Tiresias(queue_threshold=500.0),
    "optimus": Optimus,
    "pollux": lambda: Pollux(GeneticSearch(population=10, generations=5)),
}
PROFILES = {
    "toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)),
    "slow": ToyProfile(name="slow", seconds=4.0, epochs=(100.0, 200.0)),
}

SERIES = ("queue jobs", "active jobs", "GPUs in use", "efficiency weighted by GPUs")

Event = dict[str, Any]


class Case(NamedTuple):
    policy: str
    cluster: Cluster
    workload: Workload
    rules: EngineSettings


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a few jobs, some with a horizon and some with a delay longer than a round."""
    cluster = Cluster(tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))))
    jobs = [
        toy_job(f"job-{i}", draw(st.integers(0, 40)) * 25.0, draw(st.integers(1, cluster.num_gpus)), application)
        for i, application in enumerate(draw(st.lists(st.sampled_from(sorted(PROFILES)), min_size=1, max_size=7)))
    ]
    rules = EngineSettings(
        restart_delay=draw(st.sampled_from([0.0, 30.0, 100.0])),
        whole_seconds=draw(st.booleans()),
        horizon=draw(st.sampled_from([None, 600.0])),
    )
    return Case(draw(st.sampled_from(sorted(POLICIES))), cluster, toy_workload(*jobs), rules)


def run_of(case: Case) -> Run:
    policy = POLICIES[case.policy]()
    result = simulate(case.workload, PROFILES, case.cluster, policy, settings=case.rules, seed=1)
    info = {"nodes": case.cluster.groups, "config": {"engine": {"restart_delay": case.rules.restart_delay}}}
    return Run("drawn", info, result)


def check(run: Run, found: list[Event]) -> None:
    """Check everything that must hold of a run's timeline."""
    jobs_pid = CLUSTER_PID + 1 + cluster_of(run).num_nodes
    of_jobs, found = ([e for e in found if (e["pid"] == jobs_pid) == which] for which in (True, False))
    check_jobs(run, of_jobs)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    check_tracks(run, names, tracks)
    check_service(run, tracks)
    check_delays(run, tracks)
    check_flows(run, found, tracks)
    check_counters(run, found)


def check_tracks(run: Run, names: dict[tuple[int, int], str], tracks: dict[tuple[int, int], list[Event]]) -> None:
    """There is a track for every GPU, each with a thread number of its own, and on none do slices overlap."""
    cluster = cluster_of(run)
    assert Counter(pid - CLUSTER_PID - 1 for pid, _ in names) == Counter(dict(enumerate(cluster.gpus_per_node)))
    assert len({tid for _, tid in names}) == cluster.num_gpus
    assert set(tracks) <= set(names)
    for of_track in tracks.values():
        of_track.sort(key=lambda e: e["ts"])
        assert all(e["dur"] > 0 for e in of_track)
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(of_track))


def check_jobs(run: Run, found: list[Event]) -> None:
    """A job's slices follow one another from its submission to its end, and wait as long as jobs.parquet says."""
    jobs = [job for job in run.result.job_records if job.submit_time <= run.result.end_time]
    assert [e["args"]["name"] for e in found if e["name"] == "thread_name"] == [job.job for job in jobs]
    tracks: dict[int, list[Event]] = defaultdict(list)
    for event in found:
        if event["ph"] in "Xi":
            tracks[event["tid"]].append(event)
    for job, of_job in zip(jobs, (tracks[tid] for tid in sorted(tracks)), strict=True):
        slices = [e for e in of_job if e["ph"] == "X"]
        marks = {e["name"]: e["ts"] for e in of_job if e["ph"] == "i"}
        end = run.result.end_time if job.left_at is None else job.left_at
        assert marks == {"submitted": round(job.submit_time * 1e6), job.status.value: round(end * 1e6)}
        edges = [(e["ts"], e["ts"] + e["dur"]) for e in slices]
        assert all(a[1] == b[0] for a, b in pairwise(edges))
        if end > job.submit_time:
            assert (edges[0][0], edges[-1][1]) == (round(job.submit_time * 1e6), round(end * 1e6))
        waited = sum(e["dur"] for e in slices if e["name"] == "waiting") / 1e6
        assert waited == pytest.approx(end - job.submit_time - job.run_time, abs=1e-3)


def check_service(run: Run, tracks: dict[tuple[int, int], list[Event]]) -> None:
    """A job's slices last as long as its GPUs were held, and say what jobs.parquet and allocations.parquet say."""
    held: Counter[str] = Counter()
    for event in (e for of_track in tracks.values() for e in of_track):
        args = event["args"]
        assert event["name"] in (args["job"], "restart", "start")
        held[args["job"]] += event["dur"]
    for job in run.result.job_records:
        assert held[job.job] / 1e6 == pytest.approx(job.gpu_seconds, abs=1e-3)
    recorded = {(r.time, r.job): r for r in run.result.allocation_records}
    for event in (e for of_track in tracks.values() for e in of_track if e["name"] == e["args"]["job"]):
        args, time = event["args"], event["ts"] / 1e6
        earlier = [r for (at, job), r in recorded.items() if job == args["job"] and at <= time + 1e-5]
        record = max(earlier, key=lambda r: r.time)
        said = (args["batch size"], args["accumulation steps"], args["GPUs"], args["nodes"])
        assert said == (record.batch_size, record.accumulation_steps, sum(record.gpus), len(record.nodes))


def check_delays(run: Run, tracks: dict[tuple[int, int], list[Event]]) -> None:
    """After each change of GPUs that lasts, the delay, or what there was time for, stands before the work."""
    delay = run.info["config"]["engine"]["restart_delay"]
    for of_track in tracks.values():
        for event in of_track:
            if event["name"] in ("restart", "start"):
                assert event["dur"] <= delay * 1e6
                assert (event["name"] == "start") == (event["args"]["restarts"] == 0)
                after = [e for e in of_track if e["ts"] == event["ts"] + event["dur"] and e["args"] == event["args"]]
                assert after or event["dur"] <= delay * 1e6
    waited = Counter(
        (e["args"]["job"], e["args"]["restarts"])
        for of_track in tracks.values()
        for e in of_track
        if e["name"] in ("restart", "start")
    )
    for job in run.result.job_records:
        lasting = lasting_placements(run, job.job) if delay else []
        assert {restarts for name, restarts in waited if name == job.job} == set(lasting)


def lasting_placements(run: Run, job: str) -> list[int]:
    """Return which of a job's placements, counted from 0, lasted longer than an instant."""
    placements: list[tuple[float, tuple[object, object]]] = []
    for record in run.result.allocation_records:
        state = (record.nodes, record.gpus)
        if record.job == job and (not placements or placements[-1][1] != state):
            placements.append((record.time, state))
    ends = [time for time, _ in placements[1:]] + [run.result.end_time] * bool(placements)
    held = [(time, end) for (time, (nodes, _)), end in zip(placements, ends, strict=True) if nodes]
    return [number for number, (time, end) in enumerate(held) if end > time]


def check_flows(run: Run, found: list[Event], tracks: dict[tuple[int, int], list[Event]]) -> None:
    """Every arrow has two ends; it starts within a slice and ends at the start of one, both of the same job."""
    starts = {e["id"]: e for e in found if e["ph"] == "s"}
    ends = {e["id"]: e for e in found if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) + len(ends) == sum(e["ph"] in "stf" for e in found)
    lasting = [len(lasting_placements(run, job.job)) for job in run.result.job_records]
    assert len(starts) == sum(max(count - 1, 0) for count in lasting)
    assert len(starts) <= sum(job.num_restarts for job in run.result.job_records)
    for number, start in starts.items():
        (old,) = enclosing(start, tracks)
        (new,) = enclosing(ends[number], tracks)
        assert old["args"]["job"] == new["args"]["job"]
        assert old["args"]["restarts"] < new["args"]["restarts"]
        assert start["ts"] == old["ts"] + old["dur"] - 1
        assert ends[number]["ts"] == new["ts"]
        assert not any(e["args"] == old["args"] and e["ts"] > old["ts"] for e in tracks[start["pid"], start["tid"]])


def enclosing(event: Event, tracks: dict[tuple[int, int], list[Event]]) -> list[Event]:
    of_track = tracks[event["pid"], event["tid"]]
    return [e for e in of_track if e["ts"] <= event["ts"] < e["ts"] + e["dur"]]


def check_counters(run: Run, found: list[Event]) -> None:
    """Counters equal rounds.parquet, the queue is who waits, and both are zero while nobody is active."""
    series: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event in found:
        if event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            series[f"{event['name']} {unit}"][event["ts"]].append(value)
    rounds = {round(r.time * 1e6): r for r in run.result.round_records}
    assert set(series) == (set(SERIES) if rounds else set())
    for name in SERIES:
        assert set(rounds) <= set(series[name])
        for ts, values in series[name].items():
            if ts not in rounds:
                assert values == [0]
                assert not any(is_active(job, ts / 1e6 + 1e-3) for job in run.result.job_records)
    for end in {
        job.left_at for job in run.result.job_records if job.left_at is not None and job.submit_time < job.left_at
    }:
        if rounds and not any(is_active(job, end) for job in run.result.job_records):
            assert all(series[name][round(end * 1e6)][-1:] == [0] for name in SERIES), end
    for ts, record in rounds.items():
        first = [series[name][ts][0] for name in SERIES[1:]]
        assert first == [record.active_jobs, record.gpus_in_use, record.efficiency]
        assert series["queue jobs"][ts][0] == record.active_jobs - running_after(run, record.time)


def is_active(job: Any, time: float) -> bool:
    return job.submit_time <= time and (job.left_at is None or job.left_at > time)


def running_after(run: Run, time: float) -> int:
    """Return the jobs that hold GPUs after a round: those that complete at that instant only after it included."""
    last: dict[str, AllocationRecord] = {}
    for record in run.result.allocation_records:
        if record.time <= time and not (record.time == time and completes_after_round(run, record)):
            last[record.job] = record
    return sum(bool(record.nodes) for record in last.values())


def completes_after_round(run: Run, record: AllocationRecord) -> bool:
    """Return whether this is a completion after the round of the same instant: others were recorded before."""
    if record.nodes:
        return False
    (round_,) = [r for r in run.result.round_records if r.time == record.time]
    there = [job for job in run.result.job_records if job.submit_time <= record.time]
    earlier = [job for job in there if job.completion_time is not None and job.completion_time < record.time]
    now = [job.job for job in there if job.completion_time == record.time]
    still_active = round_.active_jobs - (len(there) - len(earlier) - len(now))
    return record.job in now[len(now) - still_active :] if still_active else False


@given(cases())
@settings(max_examples=60)
def test_a_timeline_says_what_the_tables_say(case: Case) -> None:
    run = run_of(case)
    check(run, list(events(run)))


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_a_job_keeps_its_slots_while_it_stays(case: Case, random: Any) -> None:
    """Also where what happens at one instant is recorded in another order."""
    run = run_of(case)
    cluster, records = cluster_of(run), list(run.result.allocation_records)
    last: dict[str, Any] = {}
    for stay in stays(records, cluster, run.result.end_time):
        before = last.get(stay.job)
        last[stay.job] = stay
        if before is None or before.end != stay.start:
            continue
        for node in range(cluster.num_nodes):
            had = [slot for slot in before.slots if slot.node == node]
            has = [slot for slot in stay.slots if slot.node == node]
            assert set(has) <= set(had) or set(had) <= set(has)
    once = len({(record.time, record.job) for record in records}) == len(records)
    if once:
        shuffled = records.copy()
        random.shuffle(shuffled)
        shuffled.sort(key=lambda record: record.time)
        found = (Counter(map(where, stays(some, cluster, run.result.end_time))) for some in (shuffled, records))
        assert next(found) == next(found)


@given(cases())
@settings(max_examples=40)
def test_rectangles_are_the_stays_of_jobs_in_each_place(case: Case) -> None:
    """The last stay in a place ends when the job leaves it, whatever batch sizes it had there."""
    run, cluster = run_of(case), cluster_of(run_of(case))
    last = {
        (stay.job, stay.placed): stay for stay in stays(run.result.allocation_records, cluster, run.result.end_time)
    }
    rows = [(node, gpu) for node, gpus in enumerate(cluster.gpus_per_node) for gpu in range(gpus)]
    held, names = occupancy(run.result, cluster), [job.job for job in run.result.job_records]
    columns = zip(held.start, held.end, held.job, held.row, held.rows, strict=True)
    found = [((start, end, names[job]), rows[row + i]) for start, end, job, row, n in columns for i in range(n)]
    expected = [((stay.placed, stay.end, stay.job), slot) for stay in last.values() for slot in stay.slots]
    assert sorted(found) == sorted(expected)


def where(stay: Any) -> tuple[object, ...]:
    return (stay.job, stay.start, stay.end, len(stay.slots), tuple(sorted({slot.node for slot in stay.slots})))


def test_what_is_recorded_of_one_instant_may_stand_in_any_order() -> None:
    """A job may be given GPUs that a later record takes from another one."""
    before = [AllocationRecord(0.0, "a", (0,), (2,), 20, 0), AllocationRecord(0.0, "b", (1,), (1,), 10, 0)]
    swap = [AllocationRecord(60.0, "b", (0,), (2,), 20, 0), AllocationRecord(60.0, "a", (1,), (1,), 10, 0)]
    found = [(s.job, s.start, s.slots) for s in stays(before + swap, Cluster((2, 1)), 90.0)]
    assert found == [
        ("b", 0.0, ((1, 0),)),
        ("a", 0.0, ((0, 0), (0, 1))),
        ("a", 60.0, ((1, 0),)),
        ("b", 60.0, ((0, 0), (0, 1))),
    ]


def test_a_job_gets_the_lowest_free_slots_and_those_that_stay_keep_theirs() -> None:
    changes = [(0.0, "a", 1), (10.0, "b", 2), (20.0, "a", 0), (30.0, "c", 2), (40.0, "b", 1), (50.0, "d", 1)]
    records = [AllocationRecord(t, job, (0,) * (gpus > 0), (gpus,) * (gpus > 0), 10, 0) for t, job, gpus in changes]
    found = {(stay.job, stay.start): [slot.gpu for slot in stay.slots] for stay in stays(records, Cluster((4,)), 60.0)}
    assert found == {
        ("a", 0.0): [0],
        ("b", 10.0): [1, 2],
        ("c", 30.0): [0, 3],
        ("b", 40.0): [1],
        ("d", 50.0): [2],
    }


def test_an_arrow_leads_to_new_gpus_only() -> None:
    """Not to the same ones at another batch size; a job that had to pause is led past its pause."""
    records = (
        AllocationRecord(0.0, "a", (0,), (1,), 10, 0),
        AllocationRecord(60.0, "a", (1,), (1,), 10, 0),
        AllocationRecord(120.0, "a", (1,), (1,), 20, 0),
        AllocationRecord(180.0, "a", (), (), 0, 0),
        AllocationRecord(240.0, "a", (1,), (1,), 20, 0),
    )
    result = replace(
        simulate(toy_workload(), PROFILES, Cluster((1,)), Fifo()), allocation_records=records, end_time=300.0
    )
    run = Run("made", {"nodes": [[2, 1]], "config": {"engine": {"restart_delay": 30.0}}}, result)
    found = list(events(run))
    arrows = [(e["ph"], e["pid"], e["ts"]) for e in found if e["ph"] in "sf"]
    assert arrows == [("s", 2, 59_999_999), ("f", 3, 60_000_000), ("s", 3, 179_999_999), ("f", 3, 240_000_000)]
    slices = [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6, e["args"]["batch size"]) for e in found if e["ph"] == "X"]
    assert slices == [
        ("start", 0, 30, 10),
        ("a", 30, 30, 10),
        ("restart", 60, 30, 10),
        ("a", 90, 30, 10),
        ("a", 120, 60, 20),
        ("restart", 240, 30, 20),
        ("a", 270, 30, 20),
    ]


def test_more_gpus_than_there_are_is_said_in_a_line() -> None:
    both = [AllocationRecord(0.0, name, (0,), (1,), 10, 0) for name in "ab"]
    with pytest.raises(InvalidInputError, match=r"at 0 s jobs hold more GPUs of node 0 than the cluster has"):
        list(stays(both, Cluster((1,)), 60.0))


def test_a_run_that_does_not_say_its_nodes_is_as_large_as_its_records_show() -> None:
    records = (AllocationRecord(0.0, "a", (0, 2), (2, 3), 10, 0),)
    result = simulate(toy_workload(), PROFILES, Cluster((1,)), Fifo())
    assert cluster_of(Run("old", {}, replace(result, allocation_records=records))) == Cluster((2, 1, 3))
    assert cluster_of(Run("empty", {}, result)) == Cluster((1,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the shipped workload on a small cluster, cut off in the middle."""
    folder = tmp_path_factory.mktemp("run") / "out"
    common = ["workload=philly-like", "workload.num_jobs=20", "cluster.num_nodes=4", "engine.horizon=14400"]
    assert main(["run", "policy=optimus", *common, f"hydra.run.dir={folder}"]) == 0
    return folder


def test_the_command_writes_the_same_bytes_twice(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", str(folder)]) == 0
    assert "wrote out.perfetto.json.gz" in capsys.readouterr().out
    assert main(["timeline", str(folder), "-o", "new/other.json.gz"]) == 0
    assert main(["timeline", str(folder), "-o", "plain.json"]) == 0
    packed = Path("out.perfetto.json.gz").read_bytes()
    assert Path("new/other.json.gz").read_bytes() == packed
    assert packed[4:8] == bytes(4)  # no time in the header
    assert gzip.decompress(packed) == Path("plain.json").read_bytes()
    run = read_run(folder)
    assert run.info["nodes"] == [[4, 4]]
    check(run, json.loads(Path("plain.json").read_text(encoding="utf-8"))["traceEvents"])


def test_the_command_says_what_is_wrong_in_a_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", "nowhere"]) == 2
    assert "nowhere: there is no such folder" in capsys.readouterr().err
    assert main(["timeline", str(folder), "-o", "run.html"]) == 2
    assert "the name of a timeline must end in .json or .json.gz" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_is_written_as_it_is_made(tmp_path: Path) -> None:
    """Eight times the changes take no more memory, beyond the records themselves."""
    peaks = []
    for count in (1_000, 8_000):
        records = tuple(
            AllocationRecord(60.0 * i, f"job-{i % 7}", (0,) * (i % 14 < 7), (1,) * (i % 14 < 7), 10, 0)
            for i in range(count)
        )
        result = replace(simulate(toy_workload(), PROFILES, Cluster((1,)), Fifo()), allocation_records=records)
        tracemalloc.start()
        write_timeline(Run("long", {"nodes": [[1, 8]]}, result), tmp_path / f"{count}.json.gz")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 580_000


@given(
    st.integers(0, 50),
    st.sampled_from([0.0, 2_000.0, 200_000.0]),
    st.sampled_from([30.0, 300.0, "young-daly", "epoch"]),
    st.sampled_from(["fifo", "pollux", "tiresias"]),
)
@settings(max_examples=30)
def test_checkpoints_are_where_jobs_stopped(seed: int, rate: float, every: float | str, policy: str) -> None:
    """What stands on a job's track adds up to what the engine counted, whether its nodes fail, are reclaimed or not."""
    rules = EngineSettings(checkpoints=Checkpoints(every, 7.0, {"slow": 11.0}))
    cluster = Cluster.uniform(3, 4, DrawnFailures(rate, repair_time=50.0), SpotReclaims(rate, 50.0, 9.0))
    workload = toy_workload(toy_job("a", 0, 4), toy_job("b", 30, 8, "slow"), toy_job("c", 200, 2))
    result = simulate(workload, PROFILES, cluster, POLICIES[policy](), settings=rules, seed=seed)
    saves = {"_target_": "polluxsim.hardware.checkpoints.Checkpoints", **asdict(rules.checkpoints)}
    run = Run(
        "saving", {"nodes": cluster.groups, "config": {"engine": {"restart_delay": 30.0, "checkpoints": saves}}}, result
    )
    found = list(events(run))
    names = {e["tid"]: e["args"]["name"] for e in found if e["pid"] == CLUSTER_PID + 4 and e["name"] == "thread_name"}
    stopped, lost = Counter[str](), Counter[str]()
    for event in found:
        if event["name"] == "checkpoint" and event["pid"] == CLUSTER_PID + 4:
            stopped[names[event["tid"]]] += event["dur"] / 1e6
        if event["name"] == "lost":
            lost[names[event["tid"]]] += event["dur"] / 1e6
    for job in result.job_records:
        assert stopped[job.job] == pytest.approx(job.checkpoint_time, abs=1e-4)
        assert lost[job.job] == pytest.approx(job.lost_time, abs=1e-4)
