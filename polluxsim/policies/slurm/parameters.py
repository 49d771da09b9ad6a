"""The parameters of slurm.conf that decisions depend on, with Slurm's names, units and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from polluxsim.common.values import NonNegativeInt, OneOf, PositiveInt
from polluxsim.common.written import Name, takes_settings
from polluxsim.policies.slurm.accounts import Accounts, Qos, read_accounts, read_qos

BACKFILL = "sched/backfill"
BUILTIN = "sched/builtin"
WITH_MEMORY = "CR_Core_Memory"
REQUEUE = "REQUEUE"
CANCEL = "CANCEL"
SUSPEND = "SUSPEND"


@takes_settings("policy")
@dataclass
class Parameters:
    """Parameters of the schedulers. 0 means no limit, as in slurm.conf.

    Source: slurm.conf(5), `SchedulerType`, `SchedulerParameters`, `SelectTypeParameters`, `DefCpuPerGPU`,
    `DefMemPerGPU`, `KillWait` and `OverTimeLimit`; Slurm's "Scheduling Configuration Guide".

    Parameters
    ----------
    scheduler_type
        `SchedulerType`: sched/backfill, or sched/builtin for the main scheduler alone.
    bf_interval
        Time between two cycles of the backfill [s].
    bf_resolution
        Plans begin and end at multiples of this time since the epoch [s].
    bf_window
        How far ahead the backfill plans [min].
    bf_window_linear
        Time by which the window of `will_run` grows [s]; 0 to double it.
    bf_max_job_test, bf_max_job_start
        Most jobs that a cycle tests, and starts.
    bf_max_job_user, bf_max_job_part, bf_max_job_user_part
        Most jobs of a user, of a partition, and of a user in a partition that a cycle tests.
    bf_min_prio_reserve, bf_min_age_reserve
        Priority, and time of waiting [s], from which a job gets a plan. Other jobs do not close their partition.
    bf_running_job_reserve
        Whether running jobs also hold their nodes in the map of windows.
    default_queue_depth, partition_job_depth
        Most jobs that the main scheduler considers after an event, in all and of a partition.
    sched_interval
        Time between two runs of the main scheduler over the whole queue [s].
    sched_min_interval
        Least time between two runs of the main scheduler [µs].
    batch_sched_delay
        Time by which the main scheduler gathers submissions and ends [s].
    assoc_limit_stop
        Whether a job that a limit stops closes its partition.
    select_type_parameters
        `SelectTypeParameters`: what limits jobs on a node, beside GPUs: CPUs (CR_Core), or CPUs and memory
        (CR_Core_Memory).
    def_cpu_per_gpu, def_mem_per_gpu
        `DefCpuPerGPU` and `DefMemPerGPU`: CPUs and memory [MB] for each GPU of a job that states none.
    preempt_type
        `PreemptType`: preempt/none, preempt/partition_prio (by tier) or preempt/qos.
    preempt_mode
        `PreemptMode`: a preempted job is requeued (REQUEUE), ends (CANCEL), or is suspended until its nodes have room
        for it again (SUSPEND).
    preempt_exempt_time
        `PreemptExemptTime`: time for which a job that started cannot be preempted [s].
    reorder_count, youngest_first
        `PreemptParameters`: how often the jobs that may be preempted are sorted again, and whether the job that started
        last goes first.
    accounts, qos
        Accounts and QOS by name, with their limits and shares. `polluxsim.policies.slurm.accounts` has an example.
    kill_wait
        Time between SIGTERM and SIGKILL at the time limit [s].
    over_time_limit
        Time by which a job may exceed its limit [min].
    """

    scheduler_type: Annotated[str, OneOf("sched/backfill", "sched/builtin")] = BACKFILL
    bf_interval: PositiveInt = 30
    bf_resolution: PositiveInt = 60
    bf_window: PositiveInt = 1440
    bf_window_linear: NonNegativeInt = 0
    bf_max_job_test: PositiveInt = 500
    bf_max_job_start: NonNegativeInt = 0
    bf_max_job_user: NonNegativeInt = 0
    bf_max_job_part: NonNegativeInt = 0
    bf_max_job_user_part: NonNegativeInt = 0
    bf_min_prio_reserve: NonNegativeInt = 0
    bf_min_age_reserve: NonNegativeInt = 0
    bf_running_job_reserve: bool = False
    default_queue_depth: NonNegativeInt = 100
    partition_job_depth: NonNegativeInt = 0
    sched_interval: PositiveInt = 60
    sched_min_interval: NonNegativeInt = 2
    batch_sched_delay: NonNegativeInt = 3
    assoc_limit_stop: bool = False
    select_type_parameters: Annotated[str, OneOf("CR_Core", "CR_Core_Memory")] = "CR_Core"
    def_cpu_per_gpu: NonNegativeInt = 0
    def_mem_per_gpu: NonNegativeInt = 0
    preempt_type: Annotated[str, OneOf("preempt/none", "preempt/partition_prio", "preempt/qos")] = "preempt/none"
    preempt_mode: Annotated[str, OneOf("REQUEUE", "CANCEL", "SUSPEND")] = REQUEUE
    preempt_exempt_time: NonNegativeInt = 0
    reorder_count: NonNegativeInt = 1
    youngest_first: bool = False
    accounts: Mapping[Name, Any] = field(default_factory=dict)
    qos: Mapping[Name, Any] = field(default_factory=dict)
    kill_wait: NonNegativeInt = 30
    over_time_limit: NonNegativeInt = 0
    tree: Accounts = field(init=False, repr=False, compare=False)
    qualities: Mapping[str, Qos] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.tree = read_accounts(self.accounts)
        self.qualities = read_qos(self.qos)

    @property
    def has_backfill(self) -> bool:
        """Return whether sched/backfill runs beside the main scheduler."""
        return self.scheduler_type == BACKFILL

    @property
    def preempts(self) -> bool:
        """Return whether jobs may preempt others."""
        return self.preempt_type != "preempt/none"

    @property
    def limits_memory(self) -> bool:
        """Return whether memory limits jobs."""
        return self.select_type_parameters == WITH_MEMORY

    def floored(self, time: int) -> int:
        """Return a time, rounded down to a multiple of `bf_resolution` [s].

        >>> Parameters().floored(119)
        60
        """
        return time - time % self.bf_resolution

    def longer_window(self, window: int) -> int:
        """Return the next window of `will_run` [s]: twice as long, or longer by `bf_window_linear`."""
        return window + (self.bf_window_linear or window)

    def reserves(self, priority: float, age: int) -> bool:
        """Return whether a job with a priority and a time of waiting [s] gets a plan, and closes its partition."""
        return priority >= self.bf_min_prio_reserve and age >= self.bf_min_age_reserve
