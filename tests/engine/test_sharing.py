"""Jobs on the same GPUs: what may be decided, how fast they are, and whose GPU time it is."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from drawn import AskedEveryRound, begun, check_fork, draws, ended, go_on, told
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidAllocationError, InvalidConfigError, InvalidInputError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interference, Interleaved, Leftovers, Pairs, Tenant
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.occupancy import occupancy, stays
from polluxsim.look.timeline import events
from polluxsim.look.why.sentences import sentence
from polluxsim.look.why.stages import stages
from polluxsim.look.why.story import at
from polluxsim.models.stages import Stages, beside, interleaved
from polluxsim.policies.contract.view import Decision
from polluxsim.policies.ordered.classic import Srsf
from polluxsim.policies.sharing.antman import AntMan
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.sharing.muri import Muri, Pack, joined, matched, weight
from polluxsim.records.storage import Run, read_run, write_run
from polluxsim.statistics.forks import from_fork
from polluxsim.statistics.series import gpus_in_use
from polluxsim.workloads.job import Job
from polluxsim.workloads.simulator_lists import GavelJobs
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.engine.sharing import Sharing
    from polluxsim.hardware.placements import Gpus
    from polluxsim.policies.contract.policy import Policy
    from polluxsim.policies.contract.view import ClusterView
    from polluxsim.policies.sharing.muri import Kind
    from polluxsim.records.results import JobRecord, Result

LOADS, COMPUTES = Stages(1.0, 0.9, 0.05, 0.0), Stages(1.0, 0.05, 0.9, 0.0)
BOTH = ((0, 0), (0, 1))
NO_DELAY = 0.0
SMALL = ("workload=philly-like", "workload.num_jobs=3", "workload.hours=1")


@dataclass
class Fixed:
    """Gives each job the same GPUs by number from its first round on."""

    gpus: Mapping[str, Gpus]
    seen: list[dict[str, Gpus]] = field(default_factory=list)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.seen.append(dict(view.sharing.held))
        return Decision({}, shared={job.job_id: self.gpus[job.job_id] for job in view.jobs})


def job(name: str, stages: Stages | None = LOADS, **options: Any) -> Job:
    return Job.rigid(name, 0.0, 2, 6000.0, stages=stages, **options)


def run(jobs: tuple[Job, ...], policy: Policy, sharing: Sharing | None, cluster: Cluster | None = None) -> Result:
    rules = EngineSettings(restart_delay=NO_DELAY, sharing=sharing)
    return simulate(Workload(jobs), {}, cluster or Cluster.uniform(1, 4), policy, settings=rules)


def time_of(record: JobRecord) -> float:
    """Return how long a job took from its first start."""
    assert record.completion_time is not None
    assert record.start_time is not None
    return record.completion_time - record.start_time


def test_a_pack_progresses_as_its_cycle_says_and_shares_the_gpu_time() -> None:
    jobs = (job("a"), job("b", COMPUTES))
    result = run(jobs, policy := Fixed({"a": BOTH, "b": BOTH[::-1]}), Interleaved())
    cycle = interleaved(tuple(sorted((LOADS, COMPUTES))))
    assert 1.0 < cycle < 2.0
    for record in result.job_records:
        assert time_of(record) == pytest.approx(6000 * cycle)
        assert record.gpu_seconds == pytest.approx(6000 * cycle)  # two GPUs, half of each
    assert max(row.gpus_in_use for row in result.round_records) == 2
    assert policy.seen[-1] == {"a": BOTH, "b": BOTH[::-1]}


def test_who_remains_is_as_fast_as_alone_from_the_next_round_on() -> None:
    long, short = job("a"), Job.rigid("b", 0.0, 2, 600.0, stages=COMPUTES)
    first, second = run((long, short), Fixed({"a": BOTH, "b": BOTH}), Interleaved()).job_records
    cycle = interleaved(tuple(sorted((LOADS, COMPUTES))))
    shared = -(-600 * cycle // 60) * 60
    assert time_of(second) == pytest.approx(600 * cycle)
    assert time_of(first) == pytest.approx(6000 + shared * (1 - 1 / cycle))


def test_beside_a_guaranteed_job_another_has_what_is_left_and_the_first_loses_nothing() -> None:
    hosts, guest = (job("a", COMPUTES), job("b", LOADS)), job("c", LOADS, priority=-1.0)
    where = {"a": BOTH, "b": ((0, 2), (0, 3)), "c": ((0, 1), (0, 2))}
    records = run((*hosts, guest), Fixed(where), Leftovers()).job_records
    times = [time_of(record) for record in records]
    assert times[:2] == pytest.approx([6000, 6000])
    slowed = max(beside(LOADS, COMPUTES), beside(LOADS, LOADS))
    assert slowed > 1
    assert times[2] == pytest.approx(6000 + 6000 * (1 - 1 / slowed))


@pytest.mark.parametrize(
    ("gpus", "sharing", "words"),
    [
        ({"a": BOTH, "b": BOTH}, None, "put jobs 'a' and 'b' on GPU 0 of node 0, but engine."),
        ({"a": BOTH, "b": ((0, 1), (0, 2))}, Interleaved(), "GPU 1 of node 0, but Interleaved does not"),
        ({"a": BOTH, "b": BOTH}, Leftovers(), "but Leftovers does not let them share it"),
        ({"a": BOTH, "b": BOTH}, Interference(0.5), "but Interference does not let them share it"),
        ({"a": ((0, 0), (0, 4)), "b": BOTH}, Interleaved(), "gave job 'a' GPU 4 of node 0, must be 0 to 3"),
        ({"a": ((0, 0), (1, 0)), "b": BOTH}, Interleaved(), "gave job 'a' node 1, must be 0 to 0"),
        ({"a": ((0, 0), (0, 0)), "b": BOTH}, Interleaved(), "in shared, must be GPUs, each once"),
        ({"a": ((0, 0.5),), "b": BOTH}, Interleaved(), "must be pairs (node, number) of whole numbers"),
        ({"a": (), "b": BOTH}, Interleaved(), "in shared, must be GPUs, each once"),
    ],
)  # fmt: skip
def test_what_cannot_be_together_is_refused(gpus: dict[str, Gpus], sharing: Sharing | None, words: str) -> None:
    with pytest.raises(InvalidAllocationError) as raised:
        run((job("a"), job("b")), Fixed(gpus), sharing)
    assert words in str(raised.value)


def test_whole_and_numbered_gpus_of_a_node_are_no_more_than_it_has() -> None:
    class Mixed:
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            here = {job.job_id for job in view.jobs}
            return Decision({"a": ((0, 2),)} if "a" in here else {}, shared=dict.fromkeys(here - {"a"}, BOTH))

    run((job("a"), job("b"), job("c")), Mixed(), Interleaved())
    with pytest.raises(InvalidAllocationError, match="over-allocated node 0: jobs would hold 4 GPUs, the node has 3"):
        run((job("a"), job("b"), job("c")), Mixed(), Interleaved(), Cluster((3,)))


def test_who_needs_sharing_says_so_and_one_guest_is_enough() -> None:
    with pytest.raises(InvalidConfigError, match=r"engine\.sharing is null, and Muri needs it; set engine/sharing$"):
        run((job("a"),), Muri(), None)
    with pytest.raises(InvalidConfigError, match=r"engine\.interference is 0\.5, must be 0 with"):
        EngineSettings(interference=0.5, sharing=Interleaved())


times_alone = st.sampled_from([LOADS, COMPUTES, Stages(0.5, 0.1, 0.3, 0.3), Stages(1.0, 0.2, 0.2, 0.9), None])
jobs = st.lists(
    st.builds(
        lambda at, gpus, length, stages, priority: (at, gpus, length, stages, priority),
        st.integers(0, 2000), st.sampled_from([1, 2, 4]), st.integers(60, 4000), times_alone,
        st.sampled_from([0.0, -1.0]),
    ),
    min_size=1, max_size=14,
).map(lambda rows: tuple(
    Job.rigid(f"{i}", float(at), gpus, float(length), stages=stages, priority=priority)
    for i, (at, gpus, length, stages, priority) in enumerate(rows)
))  # fmt: skip
SHARING: dict[str, tuple[Callable[[], Policy], Callable[[], Sharing]]] = {
    "muri-s": (Muri, Interleaved),
    "muri-l": (lambda: Muri(knows_durations=False, falls_apart=False), Interleaved),
    "antman": (AntMan, Leftovers),
    "gandiva": (Gandiva, Interleaved),
}


@given(st.sampled_from(sorted(SHARING)), jobs)
@draws(20)
def test_laws_of_sharing(name: str, jobs: tuple[Job, ...]) -> None:
    """Everybody completes, nobody sooner than alone; GPU time is nowhere more than there is."""
    make, sharing = SHARING[name]
    cluster = Cluster.uniform(2, 4)
    result = run(jobs, make(), sharing(), cluster)
    for each, record in zip(sorted(jobs, key=lambda job: job.submit_time), result.job_records, strict=True):
        assert record.run_time >= each.duration * (1 - 1e-9)  # type: ignore[operator]
        assert record.gpu_seconds <= record.run_time * each.num_replicas * (1 + 1e-9)
    assert all(row.gpus_in_use <= cluster.num_gpus for row in result.round_records)
    last = max(record.completion_time or 0.0 for record in result.job_records)
    assert sum(record.gpu_seconds for record in result.job_records) <= last * cluster.num_gpus * (1 + 1e-9)


@given(st.sampled_from(sorted(SHARING)), jobs, st.floats(100.0, 9000.0))
@draws(10)
def test_gpu_time_after_a_fork_is_the_rest(name: str, jobs: tuple[Job, ...], time: float) -> None:
    make, sharing = SHARING[name]
    whole, until = (
        simulate(
            Workload(jobs), {}, Cluster.uniform(2, 4), make(),
            settings=EngineSettings(restart_delay=NO_DELAY, sharing=sharing(), horizon=horizon),
        )
        for horizon in (None, time)
    )  # fmt: skip
    before = {job.job: job.gpu_seconds for job in until.job_records}
    after = {job.job: job.gpu_seconds for job in from_fork(whole, time, 60.0).job_records}
    for record in whole.job_records:
        if record.job in after:
            assert after[record.job] == pytest.approx(record.gpu_seconds - before[record.job], abs=1e-6)


@given(st.sampled_from(sorted(SHARING)), jobs, st.integers(0, 8), st.booleans())
@draws(10)
def test_a_shared_run_and_its_copies_end_alike(name: str, jobs: tuple[Job, ...], turns: int, look: bool) -> None:
    """And so does one whose policy is asked at every round."""
    make, sharing = SHARING[name]
    rules, cluster, workload = EngineSettings(sharing=sharing()), Cluster.uniform(2, 4), Workload(jobs)
    policy, other, always = make(), make(), AskedEveryRound(make())
    uninterrupted = told(ended(begun(workload, cluster, other, rules), other))
    assert simulate(workload, {}, cluster, always, settings=rules, seed=1).job_records == uninterrupted[0].job_records  # type: ignore[attr-defined]
    run = begun(workload, cluster, policy, rules)
    go_on(run, policy, turns, look=look)
    check_fork(run, policy, uninterrupted)


@given(jobs)
@draws(10)
def test_guests_that_nobody_uses_change_nothing(jobs: tuple[Job, ...]) -> None:
    cluster = Cluster.uniform(2, 4)
    plain = run(jobs, Srsf(), None, cluster)
    assert run(jobs, Srsf(), Interleaved(), cluster) == plain == run(jobs, Srsf(), Leftovers(), cluster)


@given(st.permutations([LOADS, COMPUTES, Stages(1.0, 0.2, 0.2, 0.9), Stages(0.5, 0.1, 0.3, 0.3)]), st.integers(2, 4))
def test_like_jobs_fare_alike_in_any_order(pack: list[Stages], size: int) -> None:
    one, other = tuple(pack[:size]), tuple(pack[:size][::-1])
    assert interleaved(one) == interleaved(other)


alone = st.builds(Stages, st.just(1.0), st.floats(0.01, 1.0), *(st.floats(0.0, 1.0) for _ in range(2)))
packs = st.lists(
    st.one_of(alone, times_alone.filter(bool)).flatmap(lambda one: st.sampled_from([(one,), (one, COMPUTES)])),
    min_size=1, max_size=4,
).flatmap(lambda kinds: st.lists(st.sampled_from(kinds), max_size=9))  # fmt: skip


@given(packs)
@draws(60)
def test_packs_are_matched_as_well_as_can_be(kinds: list[Kind]) -> None:
    """However many there are of each kind: no pairs of at most four jobs are worth more together."""
    pairs = matched(kinds)
    places = [place for pair in pairs for place in pair]
    assert len(set(places)) == len(places)
    assert all(len(kinds[one]) + len(kinds[other]) <= 4 for one, other in pairs)
    total = sum(weight(joined(kinds[one], kinds[other])) for one, other in pairs)
    assert total == pytest.approx(best(tuple(kinds)))


def test_stages_that_take_no_time_are_none() -> None:
    with pytest.raises(InvalidInputError, match=r"stages.*one above 0 \[s\]"):
        job("a", Stages(1.0, 0.0, 0.0, 0.0))


def test_odd_circles_of_kinds_are_matched_as_well_as_can_be() -> None:
    """Three of a kind, or one each of three: halves of pairs would be worth more, and there are none."""
    three = [(LOADS,), (COMPUTES,), (Stages(1.0, 0.1, 0.1, 0.7),)]
    for kinds in (three, [three[0]] * 3, three + three[:2], three + [three[0]] * 2):
        total = sum(weight(joined(kinds[one], kinds[other])) for one, other in matched(kinds))
        assert total == pytest.approx(best(tuple(kinds)))


@cache
def best(kinds: tuple[Kind, ...]) -> float:
    """Return the greatest weight of a matching, by trying all."""
    if len(kinds) < 2:
        return 0.0
    first, *others = kinds
    rest = (tuple(others[:i] + others[i + 1 :]) for i in range(len(others)))
    with_first = [
        weight(joined(first, other)) + best(left)
        for other, left in zip(others, rest, strict=True)
        if len(first) + len(other) <= 4
    ]
    return max(best(tuple(others)), *with_first)


@given(st.sampled_from(sorted(SHARING)), jobs, st.sampled_from([0.0, 30.0]))
@draws(10)
def test_records_and_pictures_tell_who_was_where_and_how_fast(name: str, jobs: tuple[Job, ...], delay: float) -> None:
    """What was done is recorded speeds over recorded times; a timeline's tracks, and a map's parts, do not overlap."""
    make, sharing = SHARING[name]
    cluster, rules = Cluster.uniform(2, 4), EngineSettings(restart_delay=delay, sharing=sharing())
    result = simulate(Workload(jobs), {}, cluster, make(), settings=rules)
    info = {"nodes": cluster.groups, "config": {"engine": {"restart_delay": delay}}}
    done, on, like = Counter[str](), defaultdict[object, set[str]](set), defaultdict[object, set[float]](set)
    kinds = {job.job_id: (job.stages, job.priority < 0) for job in jobs}
    costs = {(start.job, start.time): start.delay for start in result.start_records}
    for stay in stays(result.allocation_records, cluster, result.end_time, result.sharing_records):
        begin = max(stay.start, min(stay.placed + costs.get((stay.job, stay.placed), delay), stay.end))
        done[stay.job] += (stay.end - begin) * stay.speed
        like[stay.slots, stay.start, kinds[stay.job]].add(stay.speed)
        for place in zip(stay.slots, stay.lanes, strict=True):
            on[place, stay.start].add(stay.job)
    for reason in result.reason_records:
        assert not re.search(r"gives the reason|_|nan|None", text := sentence(reason, result.reason_texts)), text
    assert done == pytest.approx({job.job_id: job.duration for job in jobs})
    assert all(len(there) == 1 for there in (*on.values(), *like.values()))
    held, in_use = occupancy(result, cluster), gpus_in_use(result)
    assert [in_use.at(row.time) for row in result.round_records] == [row.gpus_in_use for row in result.round_records]
    time = held.rows / held.shared.of * (held.end - held.start)  # type: ignore[union-attr]
    assert time.sum() == pytest.approx(in_use.means(np.array([0.0, result.end_time]))[0] * result.end_time)
    tracks = defaultdict[object, list[tuple[int, int]]](list)
    for event in events(Run("shared", info, result)):
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert all(a[1] <= b[0] for track in tracks.values() for a, b in pairwise(sorted(track)))


def test_who_has_whole_gpus_makes_room_in_pictures_for_who_names_them() -> None:
    class Late:
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            here = {job.job_id for job in view.jobs}
            return Decision({"a": ((0, 2),)} if "a" in here else {}, shared=dict.fromkeys(here - {"a"}, BOTH))

    late = tuple(replace(job(name), submit_time=100.0) for name in "bc")
    result = run((job("a"), *late), Late(), Interleaved())
    found = {
        (stay.job, stay.placed): [slot.gpu for slot in stay.slots]
        for stay in stays(result.allocation_records, Cluster((4,)), result.end_time, result.sharing_records)
    }
    assert found == {("a", 60.0): [2, 3], ("b", 120.0): [0, 1], ("c", 120.0): [0, 1]}


def test_a_shared_run_is_told_whole_and_its_table_goes_with_it(tmp_path: Path) -> None:
    result = run((job("a"), job("b", COMPUTES)), Fixed({"a": BOTH, "b": BOTH}), Interleaved())
    folder = tmp_path / "run"
    write_run(folder, result, {"config": {}, "nodes": [[1, 4]]})
    assert read_run(folder).result == result
    for command in (["why", "b"], ["report", "-o", f"{tmp_path}/r.html"], ["table"]):
        assert main([command[0], str(folder), *command[1:]]) == 0
    job_b = read_run(folder).result.job_records[1]
    said = at(read_run(folder), (), job_b, 1800.0)
    speed = f"{100 / interleaved(tuple(sorted((LOADS, COMPUTES)))):.0f} %"
    assert f"Since 0:01:00 at {speed} of its speed alone: it shares GPUs 0, 1 of node 0 with a ({speed})." in said
    assert re.search(r"At \d+:\d\d:\d\d, 2 GPUs of the cluster were held by 2 of 2 active jobs", said)
    write_run(folder, run((job("a"),), Srsf(), None), {"config": {}, "nodes": [[1, 4]]})
    assert not list(folder.glob("sharing*"))


PAIR = "gpu_type,model,batch_size,gpus,other_model,other_batch_size,steps_per_s,other_steps_per_s\nv100,toy,5,2,toy,10,"


def measured(folder: Path, speeds: str) -> tuple[tuple[Job, ...], Pairs]:
    """Return two jobs of 6,000 and 3,000 s alone at 2 and 4 steps a second, and what was measured of both together."""
    (folder / "jobs.csv").write_text(
        "job_id,model,batch_size,gpus,mode,total_steps,arrival_s\na,toy,5,2,static,12000,0\nb,toy,10,2,static,12000,0\n"
    )
    (folder / "throughputs_alone.csv").write_text(
        "gpu_type,model,batch_size,gpus,steps_per_s\nv100,toy,5,2,2\nv100,toy,10,2,4\n"
    )
    (folder / "pairs.csv").write_text(f"{PAIR}{speeds}\n")
    jobs = GavelJobs(str(folder / "jobs.csv"), overtime=None).load({}).jobs
    return jobs, Pairs(str(folder / "pairs.csv"))


def test_pairs_progress_as_the_table_says_and_who_was_not_measured_is_refused(tmp_path: Path) -> None:
    jobs, pairs = measured(tmp_path, "1.5,2")
    result = run(jobs, Fixed({"a": BOTH, "b": BOTH[::-1]}), pairs)
    assert [time_of(record) for record in result.job_records] == pytest.approx([6000 + 6000 * 0.25, 6000])
    assert [record.speed for record in result.sharing_records] == pytest.approx([0.75, 0.5, 1.0])
    assert pairs.lost([Tenant(jobs[0], ((0, 2),), ()), Tenant(jobs[1], ((0, 2),), BOTH)]) == {}
    for speeds, where in (("1.5,0", BOTH), ("1.5,2", (*BOTH[1:], (0, 2)))):
        jobs, pairs = measured(tmp_path, speeds)
        with pytest.raises(InvalidAllocationError, match="but Pairs does not let them share it"):
            run(jobs, Fixed({"a": BOTH, "b": where}), pairs)
    with pytest.raises(InvalidInputError, match=r"pairs\.csv, line 2: column 'other_steps_per_s' is '-1'"):
        measured(tmp_path, "1.5,-1")
    for row in ("5,2,toy,10,1.25,2", "10,2,toy,5,2,1.25"):
        with pytest.raises(InvalidInputError, match=r"line 3: column '.*steps_per_s' is 1.25, .* has 1.5"):
            measured(tmp_path, f"1.5,2\nv100,toy,{row}")


@pytest.mark.parametrize(("gpus", "pairs"), [(4, 0), (3, 1), (2, 2)])
def test_no_more_jobs_are_packed_than_it_takes_until_all_fit(gpus: int, pairs: int) -> None:
    jobs = tuple(Job.rigid(f"{n}", 0.0, 1, 600.0, stages=(LOADS, COMPUTES)[n % 2]) for n in range(4))
    result = run(jobs, Muri(falls_apart=False), Interleaved(), Cluster.uniform(1, gpus))
    assert sum(record.time == 60.0 and record.speed < 1 for record in result.sharing_records) == 2 * pairs


def test_nobody_is_faster_beside_another_than_alone(tmp_path: Path) -> None:
    jobs, pairs = measured(tmp_path, "2.2,5")
    result = run(jobs, Fixed({"a": BOTH, "b": BOTH[::-1]}), pairs)
    assert [time_of(record) for record in result.job_records] == pytest.approx([6000, 3000])


@pytest.mark.parametrize(("speeds", "rounds"), [("1.2,2", None), ("0.9,2", 1)])
def test_gandiva_keeps_a_pair_that_pays_and_parts_another_after_a_round(
    speeds: str, rounds: int | None, tmp_path: Path
) -> None:
    jobs, pairs = measured(tmp_path, speeds)
    result = run(jobs, Gandiva(), pairs, Cluster((2,)))
    parts = occupancy(result, Cluster((2,)))
    time = sum((parts.end - parts.start)[parts.shared.of == 2]) / 2  # type: ignore[union-attr]
    assert time == pytest.approx(6000.0 if rounds is None else 60.0 * rounds)
    assert all(record.completion_time for record in result.job_records)


def test_why_names_who_shares_which_gpu_since_when_and_whose_it_was() -> None:
    """A guest on GPUs 1 and 2 of a node, each with another host; then another takes GPU 1 over from it."""
    hosts = (job("a", COMPUTES), Job.rigid("b", 0.0, 2, 3000.0, stages=LOADS))
    guests = (
        Job.rigid("c", 0.0, 2, 600.0, stages=LOADS, priority=-1.0),
        Job.rigid("d", 900.0, 1, 600.0, priority=-1.0),
    )
    where = {"a": BOTH, "b": ((0, 2), (0, 3)), "c": ((0, 1), (0, 2)), "d": ((0, 1),)}
    guests = (guests[0], replace(guests[1], stages=LOADS))

    class InTurn(Fixed):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            here = {job.job_id for job in view.jobs} - ({"c"} if any(job.job_id == "d" for job in view.jobs) else set())
            return Decision({}, shared={name: self.gpus[name] for name in here})

    result = run((*hosts, *guests), InTurn(where), Leftovers())
    told = Run("shared", {}, result)
    slow = 1 / max(beside(LOADS, COMPUTES), beside(LOADS, LOADS))
    records = {record.job: record for record in result.job_records}
    guest = (
        f"Since 0:01:00 at {100 * slow:.0f} % of its speed alone: it shares GPU 1 of node 0 with a (100 %) "
        "and GPU 2 of node 0 "
    )
    assert f"{guest}with b (100 %)." in at(told, (), records["c"], 600.0)
    assert "with c" not in at(told, (), records["b"], 960.0)
    assert "it shares GPU 1 of node 0 with c" in at(told, (), records["a"], 600.0)
    since = "Since 0:15:00 at 100 % of its speed alone: it shares GPU 1 of node 0 with d"
    assert f"{since} ({100 / beside(LOADS, COMPUTES):.0f} %)" in at(told, (), records["a"], 1200.0)
    began = next(stage for stage in stages(told, records["d"]) if stage.gpus)
    assert began.given_by == {"c": 1}
    ended = next(stage for stage in stages(told, records["c"]) if stage.before)
    assert ended.taken_by == {"d": 1}


def test_only_so_many_as_would_fill_the_cluster_in_packs_are_looked_at() -> None:
    """Nine jobs of both GPUs: the first four are packed, whoever else would fit beside the first."""
    jobs = tuple(Job.rigid(f"{i}", 0.0, 2, 6000.0 + i, stages=(LOADS, COMPUTES)[i % 2]) for i in range(9))
    result = run(jobs, Muri(), Interleaved(), Cluster.uniform(1, 2))
    first = [record for record in result.reason_records if record.time == 60.0]
    assert {record.job: record.kind for record in first} == {
        str(i): "in-pack" if i < 4 else "beyond-packs" for i in range(9)
    }


def test_a_pack_that_waits_says_so() -> None:
    jobs = tuple(Job.rigid(name, 0.0, gpus, 6000.0) for name, gpus in (("a", 2), ("b", 1)))
    reasons = run(jobs, Muri(falls_apart=False), Interleaved(), Cluster.uniform(1, 2)).reason_records
    kinds = {record.job: record.kind for record in reasons if record.time == 60.0}
    assert kinds["a"] != kinds["b"]
    assert set(kinds.values()) <= {"in-pack", "pack-waits", "beyond-packs"}


def test_a_pair_can_be_slower_than_one_after_the_other() -> None:
    busy, other, loads = (
        SimpleNamespace(job_id=name, stages=stages)
        for name, stages in zip("abc", (Stages(1.0, 0.0, 1.0, 0.0), Stages(1.0, 0.0, 1.0, 0.0), LOADS), strict=True)
    )
    assert Pack((busy, other), 0, "gpu").is_slower_than_in_turn
    assert not Pack((busy, loads), 0, "gpu").is_slower_than_in_turn
    assert not Pack((busy,), 0, "gpu").is_slower_than_in_turn


def test_priority_zero_is_a_guarantee() -> None:
    """It goes before one of less that was submitted earlier."""
    jobs = tuple(
        Job.rigid(name, at, 2, 600.0, priority=priority)
        for name, at, priority in (("less", 0.0, -1.0), ("zero", 1.0, 0.0))
    )
    records = {record.job: record for record in run(jobs, AntMan(), Leftovers(), Cluster.uniform(1, 2)).job_records}
    assert (records["zero"].start_time, records["less"].start_time) == (60.0, 660.0)
