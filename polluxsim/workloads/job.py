"""One job as its user submits it, which checks itself wherever it comes from."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from polluxsim.errors import InvalidInputError, short
from polluxsim.hosts import Host
from polluxsim.models.planned import BatchPlan
from polluxsim.models.rigid import RIGID
from polluxsim.models.scaling import ELASTIC
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.types import MOST_SECONDS
from polluxsim.workloads.job_rules import MOST_COUNT, RULES, is_name

if TYPE_CHECKING:
    from polluxsim.models.rigid import TypeSpeeds
    from polluxsim.models.scaling import Speeds
    from polluxsim.models.sensitivity import Curve
    from polluxsim.models.stages import Stages
    from polluxsim.types import JobId


class InvalidJobError(InvalidInputError):
    """A field of a job that is not what is allowed.

    Parameters
    ----------
    job
        The job's name.
    field, value, allowed
        The field of `Job`, what it is, and what it may be, in words.
    """

    def __init__(self, job: object, field: str, value: object, allowed: str) -> None:
        super().__init__(job, field, value, allowed)
        self.field, self.allowed = field, allowed

    def __str__(self) -> str:
        job, field, value, allowed = self.args
        return f"job {short(job)}: {field} is {short(value)}, allowed is {allowed}"


@dataclass(frozen=True, slots=True)
class Job:
    """One job as its user submits it.

    Parameters
    ----------
    job_id
        Its name, unique in the workload.
    submit_time
        When it arrives [s since the start of the workload].
    application
        Name of the application it trains; `RIGID` for a job without a profile.
    num_replicas
        GPUs its user asks for.
    batch_size
        Total batch size its user asks for [examples].
    line
        Where it stands in the file it came from, for messages; 0 if in none.
    duration
        Time that a job without a profile needs on its GPUs [s]; None for one with a profile.
    user, queue
        Who pays; a queue is a virtual cluster, partition or tenant. None if nobody says.
    priority
        For policies that look at it, larger first.
    deadline
        When its user hopes to have it complete [s since the start of the workload].
    time_limit
        Longest time on GPUs that its user promises [s].
    after
        Names of the jobs that must be complete before it is submitted.
    gpu_types
        Types of GPU that it can use; empty is any.
    min_replicas, max_replicas
        Fewest and most GPUs its user can do with; None if nobody says.
    cancel_time
        When its user gives up [s since the start of the workload].
    type_speeds
        Of a job without a profile whose speed differs by GPU type: pairs (type, speed), 1 where it lasts `duration`, 0
        where it does not fit in memory; it runs on no other type. Empty if it is as fast on any.
    speeds
        Speed by GPU count, in any unit, of a job without a profile that can run on others than `num_replicas` GPUs:
        pairs (GPUs, speed) with rising counts; `duration` is that on the GPUs asked for. Empty for one that cannot.
    stages
        What a step takes on which resource, of a job that may share GPUs by that; None if not known.
    cpus, memory
        What its user asks for, on all its nodes together [cores; GB]; None if nobody says.
    cpu_speeds, memory_speeds
        Speed by CPUs and by memory for each GPU [cores; GB], over that of its profile or duration: pairs (amount,
        speed) with rising amounts and speeds that do not fall; the lesser of both counts. Empty if they make no
        difference, or its profile says which.
    plan
        How a job without a profile changes its batch size by itself, and how fast it is at which; `duration` is that
        of the plan. None for one that does not.

    Raises
    ------
    InvalidJobError
        If a field is not what is allowed.
    """

    job_id: JobId
    submit_time: float
    application: str
    num_replicas: int
    batch_size: int
    line: int = 0
    duration: float | None = None
    user: str | None = None
    queue: str | None = None
    priority: float = 0.0
    deadline: float | None = None
    time_limit: float | None = None
    after: tuple[JobId, ...] = ()
    gpu_types: tuple[str, ...] = ()
    min_replicas: int | None = None
    max_replicas: int | None = None
    cancel_time: float | None = None
    speeds: Speeds = ()
    type_speeds: TypeSpeeds = ()
    stages: Stages | None = None
    cpus: float | None = None
    memory: float | None = None
    cpu_speeds: Curve = ()
    memory_speeds: Curve = ()
    plan: BatchPlan | None = None

    def __post_init__(self) -> None:
        if not self._is_plainly_right():
            self._check()

    @classmethod
    def rigid(
        cls, job_id: JobId, submit_time: float, num_replicas: int, duration: float, line: int = 0, **options: Any
    ) -> Job:
        """Return a job without a profile: it needs so many GPUs for so long [s]; `options` are further fields.

        With `speeds` among them it is elastic: it can also run on other GPU counts.
        """
        if not options.get("speeds"):
            return cls(job_id, submit_time, RIGID, num_replicas, num_replicas, line, duration, **options)
        most = max(num_replicas, *(gpus for gpus, _ in options["speeds"]))
        return cls(job_id, submit_time, ELASTIC, num_replicas, most, line, duration, **options)

    @property
    def is_rigid(self) -> bool:
        """Return whether it has a duration in place of a profile."""
        return self.duration is not None

    @property
    def fixed_duration(self) -> float | None:
        """Return its duration if that is all that is known of its speed: it takes that long wherever it runs [s]."""
        return None if self.speeds or self.type_speeds or self.plan is not None else self.duration

    @property
    def host(self) -> Host | None:
        """Return the CPUs and memory that its user asks for, for each GPU; None if nobody says either."""
        if self.cpus is None and self.memory is None:
            return None
        return Host((self.cpus or 0.0) / self.num_replicas, (self.memory or 0.0) / self.num_replicas)

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Return how fast it is by CPUs and memory, as its user says."""
        if not self.cpu_speeds and not self.memory_speeds:
            return None
        return _sensitivity(self.cpu_speeds, self.memory_speeds)

    def _is_plainly_right(self) -> bool:
        """Return whether a glance shows it to be right: workloads have up to millions of jobs."""
        return (
            type(self.job_id) is str is type(self.application)
            and type(self.num_replicas) is int is type(self.batch_size)
            and type(self.submit_time) is float
            and 1 <= self.num_replicas <= MOST_COUNT >= self.batch_size >= 1
            and 0.0 <= self.submit_time <= MOST_SECONDS
            and (self.duration is None or (type(self.duration) is float and 0.0 < self.duration <= MOST_SECONDS))
            and bool(self.job_id.strip() and self.application.strip())
            and (self.user is None or is_name(self.user))
            and (self.queue is None or is_name(self.queue))
            and _other_options(self) == _NO_OTHER_OPTIONS
        )

    def _check(self) -> None:
        for name, (is_allowed, allowed) in RULES.items():
            value = getattr(self, name)
            if value is None and name not in _REQUIRED:
                continue
            if not is_allowed(value):
                raise self._error(name, allowed)
        if (self.min_replicas or 1) > self.num_replicas:
            raise self._error("min_replicas", f"at most num_replicas, {self.num_replicas}")
        if self.max_replicas is not None and self.max_replicas < self.num_replicas:
            raise self._error("max_replicas", f"at least num_replicas, {self.num_replicas}")
        if self.cancel_time is not None and self.cancel_time < self.submit_time:
            raise self._error("cancel_time", f"{self.submit_time:g} s, when it is submitted, or later")
        if self.speeds and not self._may_have_speeds():
            raise self._error("speeds", f"those of a job with a duration, at its {self.num_replicas} GPUs and others")
        if self.type_speeds and (self.speeds or not self.is_rigid):
            raise self._error("type_speeds", "those of a job with a duration and without speeds by GPU count")
        if self.plan is not None and not (isinstance(self.plan, BatchPlan) and self.is_rigid):
            raise self._error("plan", "a BatchPlan, of a job with a duration")

    def _may_have_speeds(self) -> bool:
        return self.is_rigid and self.speeds[0][0] <= self.num_replicas <= self.speeds[-1][0]

    def _error(self, name: str, allowed: str) -> InvalidJobError:
        return InvalidJobError(self.job_id, name, getattr(self, name), allowed)


@lru_cache(1 << 12)
def _sensitivity(cpus: Curve, memory: Curve) -> Sensitivity:
    return Sensitivity(cpus, memory)


_REQUIRED = frozenset(field.name for field in fields(Job) if field.default is not None)

OPTIONS = tuple(field.name for field in fields(Job) if field.default is not MISSING and field.name != "plan")[2:]
"""Fields that a job may have besides, all after `duration` that a file can hold."""

_OTHER_OPTIONS = (*(name for name in OPTIONS if name not in ("user", "queue")), "plan")
_other_options = attrgetter(*_OTHER_OPTIONS)
_NO_OTHER_OPTIONS = tuple(field.default for field in fields(Job) if field.name in _OTHER_OPTIONS)
