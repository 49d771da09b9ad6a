"""`polluxsim check` finds what was planted, in worlds that are small, and nothing where nothing is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from polluxsim.checks import Finding, check, checked_world, growth
from polluxsim.checks.checking import found
from polluxsim.checks.driving import run_policy
from polluxsim.checks.findings import Fault, as_test
from polluxsim.checks.growth import DecisionTimes
from polluxsim.checks.parameters import TIMES, with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.worlds import World
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.shipped import shipped
from polluxsim.engine.job import ActiveJob
from polluxsim.engine.recorder import RunRecorder
from polluxsim.policies.contract.policy import traits_of
from polluxsim.run.named_policies import named_policy
from polluxsim.workloads.workload import Job

FAULTS = Path(__file__).with_name("faults.py")
PATIENCE = 0.25
EXPECTED = {
    line.split('"')[1]: line.split(".")[1].strip(",\n")
    for line in FAULTS.read_text().splitlines()
    if '": Fault.' in line
}
SHIPPED = sorted(path.stem for path in (shipped("configs") / "policy").glob("*.yaml") if path.stem != "replay")


def first(name: str) -> Finding | None:
    """Return the first finding of the kind that was planted."""
    fault = Fault[EXPECTED[name]]
    worlds = range(0 if fault is Fault.GROWTH else 60)
    faults = found(f"{FAULTS}:{name}", worlds, PATIENCE if fault is Fault.HANG else None)
    return next((finding for finding in faults if finding.fault is fault), None)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_planted_fault_is_found_in_a_small_world(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "CONFIRMATIONS", 1)  # more than once is for what a busy machine makes up
    finding = first(name)
    assert finding is not None
    if finding.world is not None:
        assert len(finding.world.jobs) <= 4
        timeout = PATIENCE if finding.fault is Fault.HANG else None
        again = checked_world(f"{FAULTS}:{name}", finding.world, timeout=timeout)
        assert finding.fault in {other.fault for other in again}
        test = as_test(finding, f"{FAULTS}:{name}")
        if finding.fault is not Fault.HANG:
            namespace: dict[str, object] = {}
            exec(test, namespace)
            with pytest.raises(AssertionError):
                next(value for key, value in namespace.items() if key.startswith("test_"))()  # type: ignore[operator]


WIDE = World(
    nodes=(4, 1, 4, 1),
    jobs=(
        Job.rigid("beside", 0.0, 10, 787.5, priority=-2.0),
        Job("second", 975.0, "wide", 10, 100),
        Job.rigid("one", 0.0, 1, 60.0),
        Job("first", 625.0, "slow", 10, 100),
        Job("another", 0.0, "slow", 1, 10),
    ),
)
"""Two jobs on all nodes, of which each kept some for itself under AntMan and waited for the nodes of the other one."""

ORDERED = World(
    nodes=(1, 2),
    jobs=(
        Job.rigid("head", 300.0, 3, 962.5),
        Job.rigid("runs", 200.0, 1, 412.5),
        Job.rigid("behind", 500.0, 2, 475.0),
    ),
    parameters=(("overtaking", False),),
)
"""A job waits beside idle GPUs behind a job that does not fit. Shares of time gave no reason for it."""


OTHER_TYPES = World(
    nodes=(4, 4),
    jobs=(
        Job.rigid("a", 875.0, 4, 60.0, gpu_types=("t4",)),
        Job.rigid("b", 750.0, 4, 200.0, gpu_types=("v100",)),
        Job("c", 775.0, "toy", 1, 10),
    ),
    types=("t4", "v100"),
)
"""Gandiva packed jobs a and b, which can use different GPU types."""

ROUNDED = World(
    nodes=(1, 3, 2, 1),
    jobs=(
        Job.rigid("a", 925.0, 4, 800.0, speeds=tuple((count, count**0.75) for count in (1, 2, 4, 8, 16))),
        Job.rigid("b", 450.0, 6, 700.0),
        Job("c", 475.0, "toy", 3, 30, min_replicas=2),
    ),
    least_nodes=3,
    checkpoint_interval=100.0,
    is_scaled=True,
)
"""The engine adds up GPU time at each call. The last digit differs if JSA is called in every round."""

REPEATS = World(
    nodes=(3, 1, 2, 4),
    jobs=(
        Job("a", 275.0, "slow", 1, 10, max_replicas=4),
        Job.rigid("b", 725.0, 1, 60.0),
        Job.rigid("c", 950.0, 6, 275.0, cancel_time=955.0),
        Job.rigid("d", 525.0, 10, 500.0),
    ),
)
"""At 960 s JSA repeats its decision, without the reasons."""

LEAST = World(
    nodes=(1, 3),
    jobs=(Job.rigid("a", 0.0, 4, 287.5, min_replicas=4, max_replicas=None, speeds=((1, 1.0), (2, 1.7), (4, 2.8))),),
)
"""A job that needs 4 GPUs or more, for which Sia had no configuration, because no node has 2 or 4 GPUs."""


UNEVEN = World(
    nodes=(4, 1, 3, 1),
    jobs=(Job.rigid("grows", 0.0, 4, 3000.0, speeds=((1, 1.0), (2, 1.7), (4, 2.8), (8, 4.8))),),
)
"""Sia has no configuration of 5 to 8 GPUs, because only one node has 4 GPUs."""

GONE = World(
    nodes=(4, 3),
    jobs=(Job.rigid("due", 250.0, 2, 300.0, deadline=2000.0, gpu_types=("t4",)),),
    types=("t4", "v100"),
    outages=((0, 188.0, 456.0),),
)
"""A job with a deadline comes while no GPU of its type is up. ElasticFlow failed."""

LEARNS = World(
    nodes=(3,),
    jobs=(Job.rigid("a", 0.0, 2, 800.0, max_replicas=None, speeds=((1, 1.0), (2, 1.7), (4, 2.8))),),
    agent="pollux",
)
"""The agent allows 1 GPU at first, and 2 GPUs when it has learnt. AFS kept the job on 1 GPU."""

LATER_TYPE = World(
    nodes=(1, 2, 1),
    jobs=(
        Job("a", 525.0, "slow", 2, 20, gpu_types=("v100",)),
        Job("b", 800.0, "slow", 2, 20),
        Job.rigid("c", 900.0, 1, 925.0),
        Job("d", 725.0, "slow", 1, 10),
    ),
    types=("t4", "v100", "t4"),
    interference=0.4,
    checkpoint_interval=100.0,
    parameters=(("reset_interval", 500.0), ("overtaking", False)),
)
"""Job b holds up the others on one type, and gets GPUs of a later type. The GPU of the first type stayed idle."""

TWO_TYPES = World(
    nodes=(1, 1),
    jobs=(Job("a", 0.0, "toy", 1, 10), Job.rigid("b", 60.0, 1, 600.0, type_speeds=(("t4", 1.0), ("v100", 3.0)))),
    types=("t4", "v100"),
    agent="pollux",
)
"""The agent of job a learns on each type. Shares of time asked it for a batch size without naming the type."""

PARTS_OF_A_NODE = World(
    nodes=(3, 2),
    jobs=(
        Job("a", 1000.0, "wide", 3, 30),
        Job("b", 325.0, "slow", 3, 30),
        Job.rigid("c", 725.0, 3, 275.0),
        Job("d", 875.0, "toy", 3, 30),
        Job("e", 275.0, "toy", 1, 10, priority=-2.0),
        Job("f", 825.0, "wide", 1, 10),
        Job(
            "g", 25.0, "elastic", 2, 16, duration=962.5, priority=-2.0, gpu_types=("t4",),
            speeds=((1, 1.0), (2, 1.7), (4, 2.8), (8, 4.8), (16, 8.0)),
        ),
    ),
    types=("t4", "v100"),
)  # fmt: skip
"""Two jobs each keep a part of the node, and wait for each other. AntMan never started them."""

POWER_OF_TWO = World(
    nodes=(4, 2, 1),
    jobs=tuple(
        Job(
            name, time, "elastic", gpus, 16, duration=duration, min_replicas=least,
            speeds=((1, 1.0), (2, 1.7), (4, 2.8), (8, 4.8), (16, 8.0)),
        )
        for name, time, gpus, duration, least in (("a", 925.0, 5, 60.0, 3), ("b", 575.0, 3, 750.0, None))
    ),
)  # fmt: skip
"""Three GPUs are idle, and job a needs four: the smallest power of two above its minimum of three."""

GROWS = tuple((count, count**0.75) for count in (1, 2, 4, 8, 16))
FITS_NO_TYPE = World(
    nodes=(3, 4, 1),
    jobs=(
        Job.rigid("a", 0.0, 1, 60.0),
        Job("b", 0.0, "elastic", 5, 16, duration=60.0, speeds=GROWS),
        Job.rigid("c", 0.0, 4, 60.0),
        Job.rigid("d", 0.0, 2, 60.0),
        Job("e", 0.0, "elastic", 2, 16, duration=60.0, speeds=GROWS),
    ),
    types=("t4", "v100", "v100"),
)
"""A GPU of one type is idle beside a job of the other pool, which requests two."""

KEPT_FOR_OTHERS = World(
    nodes=(2, 2, 1, 3),
    jobs=(
        Job("a", 475.0, "slow", 2, 20),
        Job.rigid("b", 800.0, 1, 60.0),
        Job("c", 375.0, "toy", 5, 50),
        Job("d", 625.0, "wide", 6, 60),
        Job("e", 700.0, "slow", 2, 20),
        Job.rigid("f", 0.0, 1, 25.0),
    ),
)
"""AntMan keeps all six idle GPUs for jobs d and e, so that job b waits for one."""

BEYOND_PACKS = World(
    nodes=(2, 3, 1, 1),
    jobs=(
        Job("a", 0.0, "slow", 3, 30),
        Job("b", 475.0, "slow", 2, 20),
        Job("c", 0.0, "wide", 1, 10),
        Job.rigid("d", 0.0, 5, 937.5),
        Job.rigid("e", 875.0, 7, 162.5),
        Job("f", 675.0, "toy", 7, 70, queue="speech", max_replicas=7),
        Job.rigid("g", 375.0, 7, 475.0, min_replicas=7, max_replicas=7),
        Job("h", 250.0, "wide", 2, 20),
    ),
)
"""Three GPUs are idle, job d before job a needs five, and Muri does not look beyond the jobs that fill the cluster."""

FEWER_NODES = World(
    nodes=(3, 1),
    jobs=tuple(Job.rigid(f"job-{number}", 0.0, 3, 837.5) for number in range(6)),
    least_nodes=1,
    has_hosts=True,
    is_scaled=True,
)
"""DRF failed when the autoscaler showed it fewer nodes: the view had the CPUs of all nodes."""

IDLE_TYPE = World(
    nodes=(4, 4),
    jobs=(
        Job.rigid("a", 0.0, 4, 3000.0),
        Job.rigid("b", 300.0, 4, 600.0, gpu_types=("t4",), deadline=2000.0),
    ),
    types=("t4", "v100"),
)
"""Job b preempts job a, which waited beside the idle GPUs of the other type until job b had ended."""

LEARNS_LATER = World(
    nodes=(1, 1),
    jobs=(
        Job.rigid("a", 0.0, 2, 650.0, speeds=((1, 1.0), (2, 1.7), (4, 2.8))),
        Job.rigid("b", 425.0, 1, 60.0, cancel_time=430.0),
    ),
    agent="pollux",
)
"""ElasticFlow kept job a on 1 GPU when its agent allowed 2. The second job calls the policy at 480 s."""

REJECTED = World(
    nodes=(1, 2, 2, 1),
    jobs=(Job.rigid("a", 0.0, 1, 800.0), Job.rigid("rejected", 0.0, 6, 60.0, deadline=850.0)),
    least_nodes=3,
    is_scaled=True,
)
"""The autoscaler requested a node for a job that its policy rejected, and kept it until the next event."""

WITHOUT_DEADLINE = World(
    nodes=(4, 1),
    jobs=(Job.rigid("a", 0.0, 4, 625.0), Job.rigid("b", 0.0, 1, 60.0)),
    outages=((1, 12.0, 671.0),),
    types=("t4", "v100"),
    checkpoint_interval=300.0,
)
"""Job b was sent to the T4s during the outage. ElasticFlow kept it there beside the idle V100."""

SURPLUS = World(
    nodes=(1, 3),
    jobs=(
        Job.rigid("grows", 0.0, 1, 975.0, speeds=((1, 1.0), (2, 1.7), (4, 2.8), (8, 4.8), (16, 8.0))),
        Job("short", 0.0, "toy", 1, 10),
    ),
    least_nodes=1,
    agent="pollux",
    is_scaled=True,
)
"""The second node is surplus, so the autoscaler shows no idle GPUs on it. The law of idle GPUs counted them."""

WAITS_BESIDE_SURPLUS = World(
    nodes=(1, 3, 1),
    jobs=(
        *(Job.rigid(f"job-{number}", 0.0, 1, 60.0) for number in range(3)),
        Job.rigid("elastic", 0.0, 1, 60.0, speeds=((1, 1.0), (2, 1.7), (4, 2.8))),
        Job.rigid("waits", 0.0, 1, 60.0),
    ),
    least_nodes=1,
    is_scaled=True,
)
"""Themis gives the elastic job two of the four GPUs that the autoscaler shows, so one job waits."""

DECLINES = World(
    nodes=(2, 1),
    jobs=(
        Job.rigid("a", 0.0, 3, 687.5, speeds=((1, 1.0), (2, 1.7), (4, 2.8))),
        Job("b", 0.0, "slow", 3, 30),
    ),
    parameters=(("lease", 600.0),),
)
"""Under Themis, job a waited beside an idle GPU for the three GPUs that it expected a lease later."""

UNSEEN = World(
    nodes=(2, 4, 2),
    jobs=(Job.rigid("a", 0.0, 8, 550.0, speeds=((1, 1.0), (2, 1.7), (4, 2.8), (8, 4.8))),),
    agent="pollux",
)
"""The agent allows 1 GPU until it has learnt. Under Themis the job waited for 8 GPUs for ever."""

ALL_DOWN = World(
    nodes=(1, 1, 2, 4),
    jobs=(Job.rigid("a", 0.0, 7, 625.0), Job("b", 0.0, "slow", 1, 10)),
    outages=((1, 799.0, 587.0), (2, 854.0, 297.0), (3, 771.0, 806.0)),
    types=("t4", "v100", "v100", "v100"),
)
"""All V100 are down, and job a, which is a gang, waits for them. Themis divided by the number of GPUs."""

NEEDS_SEVERAL_NODES = World(nodes=(3, 3, 3), jobs=(Job("a", 900.0, "toy", 9, 90, min_replicas=9),))
"""At age 0 the restart factor is 0. Pollux gave such a job idle GPUs of one node only, which do not suffice."""

RANKS_CHANGE = World(
    nodes=(1,),
    jobs=(
        Job("job-0", 575.0, "wide", 1, 10),
        Job("job-1", 450.0, "slow", 1, 10, user="bob", priority=1.0, deadline=850.0, time_limit=100.0, max_replicas=4),
        Job("job-2", 425.0, "wide", 1, 10),
    ),
    checkpoint_interval=100.0,
    agent="fixed",
    parameters=(("p", -0.05), ("strength", 0.5), ("known_throughput", True)),
)
"""The ranks of jobs by their remaining time change while they train, also before `valid_until`."""


RESTART_COSTS_MORE = World(
    nodes=(2, 4, 2),
    jobs=(
        Job("job-0", 0.0, "rigid", 1, 1, duration=60.0),
        Job("job-1", 925.0, "rigid", 3, 3, duration=60.0),
        Job("job-2", 725.0, "slow", 3, 30),
        Job(
            "job-3", 875.0, "elastic", 7, 16, duration=60.0, min_replicas=4,
            speeds=((1, 1.0), (2, 1.681792830507429), (4, 2.8284271247461903), (8, 4.756828460010884), (16, 8.0)),
        ),
    ),
    checkpoint_interval=100.0,
    agent="adabatch",
)  # fmt: skip
"""A job loses its GPUs to another job. To restart it on the idle GPUs costs more than to let it wait."""


QUOTA_BY_TYPE = World(
    nodes=(2, 2),
    jobs=(Job("job-3", 0.0, "slow", 2, 20), Job("job-4", 0.0, "slow", 2, 20)),
    types=("t4", "v100"),
    reclaims=((0, 762.0, 234.0, 120.0),),
    parameters=(("gpus", {"none": {"t4": 2, "v100": 1}}), ("borrowing", False)),
)
"""A job needs 2 GPUs. Its queue has a quota of 2 on the type whose node is down, and of 1 on the other type."""

NO_KNOWN_TIME = World(
    nodes=(2, 1, 1, 1),
    jobs=(
        Job("job-2", 575.0, "rigid", 1, 1, duration=875.0),
        Job("job-5", 150.0, "wide", 5, 50),
        Job("job-6", 0.0, "rigid", 5, 5, duration=975.0),
    ),
    outages=((2, 476.0, 548.0),),
)
"""While a node is down, a job that needs all nodes has no reservation, and a job starts that runs longer."""


NO_POWER_OF_TWO = World(
    nodes=(2, 2, 3),
    jobs=tuple(Job(name, 0.0, "toy", 6, 60, min_replicas=3) for name in ("job-1", "job-2")),
)
"""A job that runs on 3 GPUs or more waits beside 3 idle GPUs, because ElasticFlow gives powers of two."""


CUT_TO_A_TYPE = World(
    nodes=(3, 2, 1),
    jobs=(Job("job-2", 600.0, "slow", 1, 10), Job("job-5", 500.0, "slow", 4, 40, min_replicas=4)),
    types=("t4", "v100", "t4"),
)
"""The search of Pollux gives a job GPUs of two types. The GPUs of one type are idle while another job waits."""

LOST_FOR_NOTHING = World(
    nodes=(1, 3, 1, 4),
    jobs=(
        Job("job-3", 0.0, "slow", 7, 70, min_replicas=4),
        Job("job-5", 0.0, "slow", 1, 10),
        Job("job-7", 0.0, "toy", 7, 70, min_replicas=7),
    ),
    types=("t4", "v100", "t4", "v100"),
)
"""The search of Pollux takes the GPUs of a job for a job that can then not use them."""


UNUSABLE_TYPE = World(
    nodes=(1, 1),
    jobs=(
        Job("job-2", 1000.0, "wide", 1, 10, gpu_types=("t4",)),
        Job("job-4", 875.0, "slow", 1, 10),
        Job("job-5", 950.0, "slow", 1, 10),
    ),
    outages=((0, 420.0, 746.0),),
    types=("t4", "v100"),
)
"""The search of Pollux gives a job a GPU that it cannot use. The GPU is idle while another job waits."""


RUNS_OVER = World(
    nodes=(2,),
    jobs=(
        Job("a", 700.0, "elastic", 2, 2, duration=225.0, speeds=((1, 1.0), (2, 1.681792830507429))),
        Job("b", 825.0, "rigid", 2, 2, duration=60.0, deadline=2325.0),
        Job("c", 975.0, "toy", 1, 10),
        Job("d", 825.0, "rigid", 2, 2, duration=60.0),
        Job("e", 775.0, "wide", 1, 10, deadline=1175.0, time_limit=100.0, max_replicas=4),
        Job("f", 275.0, "slow", 2, 20),
    ),
    checkpoint_interval=100.0,
)
"""Job a runs beyond the end of its plan, because of its checkpoints, on a GPU that the plan of job d needs."""


WAITS_ON_ITS_NODE = World(
    nodes=(2, 2, 2),
    jobs=(
        Job("job-2", 0.0, "rigid", 1, 1, duration=412.5),
        Job("job-3", 0.0, "rigid", 6, 6, duration=60.0, cancel_time=230.0),
        Job("job-7", 0.0, "rigid", 2, 2, duration=60.0),
    ),
)
"""Under AntMan, a job waits on the node where it keeps a GPU while other nodes become idle."""


@pytest.mark.parametrize(
    ("policy", "world"),
    [
        ("afs", LEARNS), ("allox", LATER_TYPE), ("allox", TWO_TYPES), ("antman", PARTS_OF_A_NODE),
        ("antman", KEPT_FOR_OTHERS), ("antman", WAITS_ON_ITS_NODE), ("antman", WIDE),
        ("drf", FEWER_NODES), ("elastic-edf", IDLE_TYPE), ("elastic-edf", POWER_OF_TWO), ("elastic-edf", FITS_NO_TYPE),
        ("elasticflow", GONE), ("elasticflow", REJECTED),
        ("elasticflow", WITHOUT_DEADLINE), ("elasticflow", LEARNS_LATER),
        ("elasticflow", NO_POWER_OF_TWO), ("elasticflow", RUNS_OVER), ("elasticflow", SURPLUS),
        ("gandiva", OTHER_TYPES), ("isolated", ORDERED), ("jsa", REPEATS), ("jsa", ROUNDED),
        ("multifactor", NO_KNOWN_TIME), ("muri-l", BEYOND_PACKS), ("pollux", CUT_TO_A_TYPE),
        ("pollux", LOST_FOR_NOTHING),
        ("pollux", NEEDS_SEVERAL_NODES),
        ("pollux-remaining", RANKS_CHANGE),
        ("pollux-remaining", UNUSABLE_TYPE), ("quotas", QUOTA_BY_TYPE), ("sia", LEAST), ("sia", RESTART_COSTS_MORE),
        ("sia", UNEVEN),
        ("themis", ALL_DOWN), ("themis", DECLINES), ("themis", UNSEEN), ("themis", WAITS_BESIDE_SURPLUS),
    ],
)  # fmt: skip
def test_a_fault_that_was_found_does_not_come_back(policy: str, world: World) -> None:
    assert checked_world(policy, world) == []


def test_the_law_of_scaled_times_has_all_parameters_that_are_times() -> None:
    """The comment of a parameter states its unit."""
    for path in sorted((shipped("configs") / "policy").rglob("*.yaml")):
        for line in path.read_text().splitlines():
            setting, _, comment = line.partition("#")
            if any(unit in comment for unit in ("[s]", "[GPU s]", "[1/s]")) and ":" in setting:
                name = setting.partition(":")[0].strip()
                assert name in TIMES or name == "ahead", f"{path.name}: {name}"  # forecasts count hours of the day


def test_muri_moves_a_job_that_loses_its_gpus_to_another_type_at_once() -> None:
    """In this world a job lost its T4s to a new job, and waited beside four idle V100s until an event."""
    policy = named_policy("muri-s")
    world = with_parameters(random_world(109, Allowed.under(traits_of(policy.make()))), policy, 109)
    assert checked_world(policy, world) == []


@pytest.mark.parametrize("policy", [f"{FAULTS}:Sound", "multifactor", "antman"])
def test_nothing_is_found_where_nothing_is(policy: str) -> None:
    assert check(policy, 5) == []


@pytest.mark.parametrize(("power", "is_found"), [(2.0, True), (1.2, False)])
@pytest.mark.parametrize("speed", [1.6, 1 / 1.6])
def test_a_machine_that_changes_its_speed_changes_no_finding(
    monkeypatch: pytest.MonkeyPatch, power: float, is_found: bool, speed: float
) -> None:
    """After whichever measurement, once; a core does so when the other one falls idle."""
    fifo = named_policy("fifo")
    for after in range(16):
        calls = count()

        def decided(
            guest: object, world: World, timeout: object, calls: Iterator[int] = calls, after: int = after
        ) -> DecisionTimes:
            seconds = 0.25 * (len(world.jobs) / 1000) ** power / (speed if next(calls) >= after else 1.0)
            return DecisionTimes(seconds, 2 * seconds + 0.01)

        monkeypatch.setattr(growth, "_second_decision", decided)
        monkeypatch.setattr(growth, "_jobs", lambda count, *_, **__: range(count))  # only their number matters
        finding = growth._by_jobs(fifo, None, with_rigid=True)
        assert (finding is not None) == is_found, after


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_found_in_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure how the time of a decision grows with fewer jobs and rounds than `polluxsim check` does."""
    monkeypatch.setattr(growth, "NUM_JOBS", (60, 250, 1000))
    monkeypatch.setattr(growth, "LONGEST_EXPECTED", 0.5)
    monkeypatch.setattr(growth, "NUM_ROUNDS", 300)
    assert check(name, 5) == []


class PressesCtrlC:
    """A policy during whose decision the user presses Ctrl-C."""

    def allocate(self, view: object, rng: object) -> dict[str, object]:
        signal.raise_signal(signal.SIGINT)
        return {}


def test_ctrl_c_is_no_fault_of_the_policy() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_policy(random_world(0, Allowed()), PressesCtrlC())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_guest_that_ends_the_process_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{FAULTS}:EndsTheProcess", "--worlds", "5"]) == 2
    assert "ended the process with status 0" in capfd.readouterr().err


def test_the_command_shows_a_test_to_paste(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{FAULTS}:GivesTwice", "--worlds", "30"]) == 1
    out = capfd.readouterr().out
    assert "over-allocation: policy GivesTwice over-allocated node 0" in out
    assert "def test_over_allocation() -> None:" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody.py:Mine"], "nobody.py: there is no Python file of this name"),
        ([f"{FAULTS}:Nobody"], "'faults.Nobody' does not exist: faults has no class Nobody"),
        (["polux"], "policy=polux is unknown"),
        (["fifo", "--worlds", "-1"], "--worlds is -1"),
        (["fifo", "--decision-timeout", "0s"], "--decision-timeout is 0s, must be a duration above 0"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_file_whose_name_has_a_dot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.b.py").write_text("class Mine: ...")
    with pytest.raises(InvalidConfigError, match=r"a\.b\.py: Python's module 'a\.b' is None; give the file another"):
        named_policy(f"{tmp_path / 'a.b.py'}:Mine")


REJECTING = """
from polluxsim.common.errors import InvalidAllocationError
from polluxsim.policies.contract.view import Decision

class RejectsAll:
    def allocate(self, view, rng):
        return Decision({}, rejected=frozenset(job.job_id for job in view.jobs))

class HasACause:
    def allocate(self, view, rng):
        raise InvalidAllocationError("no") from ValueError("never raised")
"""


def test_a_policy_that_rejects_all_jobs_and_an_error_with_a_cause_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "rejecting.py"
    path.write_text(REJECTING)
    assert check(f"{path}:RejectsAll", 1) == []
    assert {finding.message for finding in check(f"{path}:HasACause", 1)} == {"no", "without jobs: no"}


def test_the_worlds_follow_the_present_traits_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook checks its file again after a change."""
    needs_profiles, under = list[bool](), Allowed.under
    monkeypatch.setattr(Allowed, "under", lambda traits: needs_profiles.append(traits.needs_profiles) or under(traits))
    path = tmp_path / "changed.py"
    text = "from polluxsim.policies.contract.view import Traits\n\nclass Mine:\n    traits = Traits({})\n"
    for settings in ("", "needs_profiles=True"):
        path.write_text(text.format(settings) + "    def allocate(self, view, rng):\n        return {}\n")
        check(f"{path}:Mine", 0)
    assert needs_profiles == [False, True]


CHOOSING = Path(__file__).with_name("choosing.py")


@pytest.mark.parametrize(
    "name",
    [
        "ChoosesBatchSizes", "ChoosesBatchSizesOfAdaptiveJobs", "ChoosesForLong", "ChoosesForLongOfAdaptiveJobs",
        "ChoosesBatchSizesPerType",
    ],
)  # fmt: skip
def test_jobs_run_at_the_batch_sizes_of_their_policy_in_all_worlds(name: str) -> None:
    assert list(found(f"{CHOOSING}:{name}", range(20))) == []


@pytest.mark.parametrize("broken", ["the batch size", "the side that chose"])
def test_a_batch_size_that_the_engine_does_not_follow_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken == "the batch size":
        monkeypatch.setattr(ActiveJob, "choose_batch", lambda self, batch, *, is_moved: False)
    else:
        monkeypatch.setattr(RunRecorder, "record_chooser", lambda self, transition: None)
    finding = next(found(f"{CHOOSING}:ChoosesBatchSizesOfAdaptiveJobs", range(20)))
    assert finding.fault is Fault.BATCH_SIZE
    assert finding.message.startswith("the policy chose BatchSize(")
