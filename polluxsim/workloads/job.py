"""One job as its user submits it, with the rules for its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache, partial
from itertools import pairwise
from math import isfinite, ulp
from numbers import Integral, Real
from operator import attrgetter
from sys import float_info, intern
from typing import Any, NamedTuple, TypeVar

from polluxsim.common.errors import InvalidInputError, short
from polluxsim.common.tables import Row, as_name, read_number
from polluxsim.hardware.hosts import UNLIMITED, Host
from polluxsim.hardware.placements import MOST_SECONDS, JobId
from polluxsim.models.known_duration import ELASTIC, RIGID, BatchPlan, Speeds, TypeSpeeds
from polluxsim.models.sensitivity import Curve, Sensitivity, are_pairs, is_curve
from polluxsim.models.stages import Stages
from polluxsim.workloads.past import Past

MOST_COUNT = 10**9  # largest number of GPUs or examples of one job, to catch errors in workloads
MOST_SPEED = 1e12  # largest speed, in any unit


def is_name(value: object) -> bool:
    """Return whether a value is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def _are_names(value: object) -> bool:
    """Return whether a value is a tuple of different names."""
    return isinstance(value, tuple) and all(map(is_name, value)) and len(set(value)) == len(value)


def _is_within(least: float, most: float, value: object) -> bool:
    """Return whether a value is a number within limits, which are allowed too."""
    return isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) <= most


def _is_count(value: object) -> bool:
    """Return whether a value is a whole number that a job can have of GPUs or examples."""
    return isinstance(value, Integral) and _is_within(1, MOST_COUNT, value)


def _are_speeds(value: object) -> bool:
    """Return whether a value is pairs (GPUs, speed) with rising numbers of GPUs."""
    if not are_pairs(value):
        return False
    is_valid = all(_is_count(gpus) and _is_within(ulp(0.0), MOST_SPEED, speed) for gpus, speed in value)
    return is_valid and all(fewer[0] < more[0] for fewer, more in pairwise(value))


def _are_type_speeds(value: object) -> bool:
    """Return whether a value is pairs (GPU type, speed) with different types."""
    if not are_pairs(value) or not _are_names(tuple(name for name, _ in value)):
        return False
    return all(_is_within(0.0, MOST_SPEED, speed) for _, speed in value)


def _are_stages(value: object) -> bool:
    """Return whether a value is the time of a step, > 0, and the times of its stages, one of them > 0 [s]."""
    if not isinstance(value, tuple) or len(value) != len(Stages._fields):
        return False
    return bool(value[0]) and any(value[1:]) and all(_is_within(0.0, MOST_SECONDS, time) for time in value)


_KeyT = TypeVar("_KeyT")
_SEPARATED = "with spaces or semicolons between them"


@lru_cache(maxsize=1 << 12)
def _split(text: str) -> tuple[str, ...]:
    """Return the names in a text with semicolons, or else spaces, between them."""
    separator = ";" if ";" in text else None  # None is for any blanks
    parts = text.split(separator)
    return tuple(part.strip() for part in parts if part.strip())


def _names(row: Row, column: str) -> tuple[str, ...]:
    """Return the names in a list, or in a text with spaces or semicolons between them.

    Raise InvalidInputError for another value.
    """
    value = as_name(row.values[column])  # a single name may consist of digits, and a file has it as a number
    if isinstance(value, str):
        value = _split(value)
    allowed = f"names {_SEPARATED}, or a list of names"
    if not isinstance(value, list | tuple):
        raise row.error(column, allowed)
    names = [as_name(name) for name in value]
    texts = tuple(name for name in names if isinstance(name, str))
    if len(texts) < len(names):
        raise row.error(column, allowed)
    return texts


def _pairs(what: str, key_of: Callable[[str], _KeyT | None], row: Row, column: str) -> tuple[tuple[_KeyT, float], ...]:
    """Return pairs (key, speed) from texts KEY:speed, in a list or in a text as in `_names`."""
    pairs = []
    for text in _names(row, column):
        name, _, speed = text.rpartition(":")
        key = key_of(name)
        number = read_number(speed)
        if key is None or number is None:
            raise row.error(column, f"{what}:speed pairs {_SEPARATED}")
        pairs.append((key, number))
    return tuple(pairs)


def _whole(text: str) -> int | None:
    """Return the whole number in a text, or None."""
    number = read_number(text)
    if number is None or not number.is_integer():
        return None
    return int(number)


def curve_of(row: Row, column: str) -> Curve:
    """Return speeds by amount per GPU from a cell with texts amount:speed; raise InvalidInputError for another cell."""
    return _pairs("amount", read_number, row, column)


def _stages(row: Row, column: str) -> Stages:
    """Return the times of a step and its stages from a list of four numbers, or from a text as in `_names`."""
    numbers = [read_number(name) for name in _names(row, column)]
    times = [number for number in numbers if number is not None]
    if len(times) != len(Stages._fields) or len(numbers) != len(times):
        raise row.error(column, f"four times [s] {_SEPARATED}: step, load, compute, network")
    return Stages(*times)


class Kind(NamedTuple):
    """Kind of the values of a field."""

    is_valid: Callable[[object], bool]
    requirement: str  # end of the message "must be …"
    read: Callable[[Row, str], Any]  # returns the value in a column of a row


def _kind(is_valid: Callable[[object], bool], requirement: str, read: Callable[[Row, str], Any]) -> dict[str, Kind]:
    """Return a kind as the metadata of a field."""
    return {"kind": Kind(is_valid, requirement, read)}


_NAME = _kind(is_name, "a name", lambda row, column: intern(row.text(column)))
_NAMES = _kind(_are_names, "different names", _names)
_TIME = _kind(partial(_is_within, 0.0, MOST_SECONDS), f"a number of seconds from 0 to {MOST_SECONDS:g}", Row.number)
# A submission may be before the start of the run. `_check_past` then requires a past.
_SUBMISSION = _kind(
    partial(_is_within, -MOST_SECONDS, MOST_SECONDS), f"a number of seconds from 0 to {MOST_SECONDS:g}", Row.number
)
_LENGTH = _kind(
    partial(_is_within, ulp(0.0), MOST_SECONDS), f"a number of seconds above 0, up to {MOST_SECONDS:g}", Row.number
)
_COUNT = _kind(_is_count, f"a whole number from 1 to {MOST_COUNT:g}", Row.integer)
_AMOUNT = _kind(partial(_is_within, ulp(0.0), UNLIMITED), f"a number above 0, up to {UNLIMITED:g}", Row.number)
_CURVE = _kind(is_curve, "pairs of an amount, rising, and a speed, not falling, all above 0", curve_of)
_NUMBER = _kind(partial(_is_within, -float_info.max, float_info.max), "a finite number", Row.number)
_SPEEDS = _kind(_are_speeds, "pairs of a GPU count, rising, and a speed above 0", partial(_pairs, "GPUs", _whole))
_TYPE_SPEEDS = _kind(
    _are_type_speeds,
    "pairs of a GPU type and a speed of 0 or more, each type once",
    partial(_pairs, "TYPE", lambda name: name or None),
)
_STAGES = _kind(
    _are_stages, "the time of a step, above 0, and of its load, compute and network, one above 0 [s]", _stages
)


class InvalidJobError(InvalidInputError):
    """The value of a field of a job is invalid."""

    def __init__(self, job: object, field: str, value: object, allowed: str) -> None:
        super().__init__(job, field, value, allowed)
        self.field = field
        self.allowed = allowed

    def __str__(self) -> str:
        job, field, value, allowed = self.args
        return f"job {short(job)}: {field} is {short(value)}, must be {allowed}"


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its user submits it. Raise InvalidJobError if the value of a field is invalid."""

    job_id: JobId = field(metadata=_NAME)  # name, unique in the workload
    # Time of submission [s on the clock of the workload]. Below 0 for a job with a past.
    submit_time: float = field(metadata=_SUBMISSION)
    application: str = field(metadata=_NAME)  # name of the application; `RIGID` for a job without a profile
    num_replicas: int = field(metadata=_COUNT)  # GPUs that the user requests
    batch_size: int = field(metadata=_COUNT)  # total batch size that the user requests [examples]
    line: int = 0  # line in the file of the workload, for messages; 0 if there is no file
    # Time that a job without a profile needs on its GPUs [s]; None for a job with a profile.
    duration: float | None = field(default=None, metadata=_LENGTH)
    user: str | None = field(default=None, metadata=_NAME)  # user, or None if unknown
    queue: str | None = field(default=None, metadata=_NAME)  # queue (virtual cluster, partition or tenant), or None
    priority: float = field(default=0.0, metadata=_NUMBER)  # larger values go first; policies may use it
    # Time by which the user wants the job to complete [s on the clock of the workload].
    deadline: float | None = field(default=None, metadata=_TIME)
    time_limit: float | None = field(default=None, metadata=_LENGTH)  # longest time on GPUs that the user promises [s]
    # Names of the jobs that must complete before this job is submitted.
    after: tuple[JobId, ...] = field(default=(), metadata=_NAMES)
    gpu_types: tuple[str, ...] = field(default=(), metadata=_NAMES)  # GPU types that it can use; empty for all
    min_replicas: int | None = field(default=None, metadata=_COUNT)  # fewest GPUs that the user allows, or None
    max_replicas: int | None = field(default=None, metadata=_COUNT)  # most GPUs that the user allows, or None
    # Time when the user cancels the job [s on the clock of the workload].
    cancel_time: float | None = field(default=None, metadata=_TIME)
    # Speeds of a job without a profile on other numbers of GPUs, as pairs (GPUs, speed) with rising numbers, in any
    # unit. `duration` is the time on `num_replicas` GPUs. Empty if the number of GPUs is fixed.
    speeds: Speeds = field(default=(), metadata=_SPEEDS)
    # Speeds of a job without a profile, as pairs (GPU type, speed). At speed 1 the job takes `duration`. Speed 0 means
    # that the batch does not fit into memory. It cannot use other types. Empty if all types are equally fast.
    type_speeds: TypeSpeeds = field(default=(), metadata=_TYPE_SPEEDS)
    # Times that a step spends on each resource, for jobs that share GPUs by resource; None if unknown.
    stages: Stages | None = field(default=None, metadata=_STAGES)
    # CPUs that the user requests on all nodes together [cores], or None.
    cpus: float | None = field(default=None, metadata=_AMOUNT)
    # Memory that the user requests on all nodes together [GB], or None.
    memory: float | None = field(default=None, metadata=_AMOUNT)
    # Speed against the CPUs of each GPU [cores], relative to the profile or the duration: pairs (amount, speed) with
    # rising amounts and non-decreasing speeds. The lower of this speed and the next one counts. Empty if CPUs have no
    # effect, or if the profile states the speeds.
    cpu_speeds: Curve = field(default=(), metadata=_CURVE)
    # Speed against the memory of each GPU [GB], in the form of `cpu_speeds`.
    memory_speeds: Curve = field(default=(), metadata=_CURVE)
    # Batch sizes over time of a job without a profile, with their speeds; `duration` is the time of the plan. None if
    # the batch size is fixed.
    plan: BatchPlan | None = None
    # Name that the user gives to similar jobs, or the application that a log states; not unique. None if unknown.
    job_name: str | None = field(default=None, metadata=_NAME)
    qos: str | None = field(default=None, metadata=_NAME)  # quality of service or priority class, or None
    # Number of different nodes that the user requests. The GPUs are spread over them as evenly as possible. None if the
    # user does not say; then a job gets as few nodes as possible.
    num_nodes: int | None = field(default=None, metadata=_COUNT)
    # GPUs of each task (pod, worker) of the job. They are on one node, and tasks may share a node. 1 if the GPUs may be
    # anywhere. None if the user does not say.
    gpus_per_task: int | None = field(default=None, metadata=_COUNT)
    # State at the start of the run of a job that was submitted before; None for a job that is submitted in the run.
    past: Past | None = None

    def __post_init__(self) -> None:
        if not self._is_plainly_right():
            self._check()

    @classmethod
    def rigid(
        cls, job_id: JobId, submit_time: float, num_replicas: int, duration: float, line: int = 0, **options: Any
    ) -> Job:
        """Return a job without a profile, with its number of GPUs and its duration [s]. `options` are further fields.

        A job with `speeds` can also run on other numbers of GPUs.
        """
        if not options.get("speeds"):
            return cls(job_id, submit_time, RIGID, num_replicas, num_replicas, line, duration, **options)
        most_gpus = max(gpus for gpus, _ in options["speeds"])
        most_gpus = max(num_replicas, most_gpus)
        return cls(job_id, submit_time, ELASTIC, num_replicas, most_gpus, line, duration, **options)

    @property
    def is_rigid(self) -> bool:
        """Return whether the job has a duration instead of a profile."""
        return self.duration is not None

    @property
    def fixed_duration(self) -> float | None:
        """Return the duration of a job that takes an equal time on all GPUs [s]; None for other jobs."""
        depends_on_gpus = self.speeds or self.type_speeds or self.plan is not None
        if depends_on_gpus:
            return None
        return self.duration

    @property
    def host(self) -> Host | None:
        """Return the CPUs and memory that the user requests for each GPU; 0 if only the other one is requested.

        Return None if the user requests neither.
        """
        if self.cpus is None and self.memory is None:
            return None
        return Host((self.cpus or 0.0) / self.num_replicas, (self.memory or 0.0) / self.num_replicas)

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Return the speed of the job against CPUs and memory, as its user states it; None without a statement."""
        if not self.cpu_speeds and not self.memory_speeds:
            return None
        return _sensitivity(self.cpu_speeds, self.memory_speeds)

    def _is_plainly_right(self) -> bool:
        """Return whether quick checks pass, to save time for workloads with millions of jobs.

        They pass for most valid jobs, and for no invalid job. The checks of `_check` follow where they do not pass.
        """
        return (
            type(self.job_id) is str
            and type(self.application) is str
            and type(self.num_replicas) is int
            and type(self.batch_size) is int
            and type(self.submit_time) is float
            and 1 <= self.num_replicas <= MOST_COUNT
            and 1 <= self.batch_size <= MOST_COUNT
            and 0.0 <= self.submit_time <= MOST_SECONDS
            and (self.duration is None or (type(self.duration) is float and 0.0 < self.duration <= MOST_SECONDS))
            and (self.duration is None or self.batch_size <= self.num_replicas)
            and bool(self.job_id.strip() and self.application.strip())
            and (self.user is None or is_name(self.user))
            and (self.queue is None or is_name(self.queue))
            and (self.job_name is None or is_name(self.job_name))
            and (self.qos is None or is_name(self.qos))
            and (self.num_nodes is None or (type(self.num_nodes) is int and 1 <= self.num_nodes <= self.num_replicas))
            and type(self.priority) is float
            and isfinite(self.priority)
            and _other_options(self) == _NO_OTHER_OPTIONS
        )

    def _check(self) -> None:
        """Raise InvalidJobError about the first field with an invalid value."""
        for name, kind in KINDS.items():
            value = getattr(self, name)
            is_stated = value is not None or name in _REQUIRED
            if is_stated and not kind.is_valid(value):
                raise self._error(name, kind.requirement)
        if (self.min_replicas or 1) > self.num_replicas:
            raise self._error("min_replicas", f"at most num_replicas, {self.num_replicas}")
        if self.max_replicas is not None and self.max_replicas < self.num_replicas:
            raise self._error("max_replicas", f"at least num_replicas, {self.num_replicas}")
        self._check_nodes()
        if self.cancel_time is not None and self.cancel_time < self.submit_time:
            raise self._error("cancel_time", f"{self.submit_time:g} s or later, because the job is submitted then")
        if self.speeds and not (self.is_rigid and self.speeds[0][0] <= self.num_replicas <= self.speeds[-1][0]):
            must = f"empty for a job without a duration, and otherwise include {self.num_replicas} GPUs"
            raise self._error("speeds", must)
        most_gpus = self.speeds[-1][0] if self.speeds else self.num_replicas
        if self.is_rigid and self.plan is None and self.batch_size > most_gpus:
            raise self._error("batch_size", f"at most {most_gpus}: a job with a duration has one example for each GPU")
        if self.type_speeds and (self.speeds or not self.is_rigid):
            raise self._error("type_speeds", "empty for a job without a duration or with speeds by GPU count")
        if self.plan is not None and not (isinstance(self.plan, BatchPlan) and self.is_rigid):
            raise self._error("plan", "a BatchPlan, and the job must have a duration")

        self._check_past()

    def _check_nodes(self) -> None:
        """Check what the user requests about nodes."""
        if self.num_nodes is not None and self.num_nodes > self.num_replicas:
            raise self._error("num_nodes", f"at most num_replicas, {self.num_replicas}: each node has a GPU of the job")
        if self.gpus_per_task is None:
            return
        if self.num_replicas % self.gpus_per_task:
            raise self._error("gpus_per_task", f"a divisor of num_replicas, {self.num_replicas}")
        if self.num_nodes is not None:
            raise self._error("gpus_per_task", "empty for a job with num_nodes")

    def _check_past(self) -> None:
        """Check the state at the start of the run. Exactly the jobs that were submitted before have one."""
        past = self.past
        if past is None:
            if self.submit_time < 0:
                raise self._error("submit_time", _SUBMISSION["kind"].requirement)
            return
        if not isinstance(past, Past):
            raise self._error("past", "a Past, or None")
        if self.submit_time >= 0:
            raise self._error("submit_time", "below 0 s for a job with a state at the start of the run")
        if self.plan is not None:
            raise self._error("past", "None for a job with a plan of batch sizes")
        if past.is_running and self.after:
            raise self._error("after", "empty for a job that runs at the start of the run")
        whole = None if self.duration is None else float(self.duration)
        for name, value, requirement in past.objections(self.submit_time, whole):
            raise InvalidJobError(self.job_id, f"past_{name}", value, requirement)

    def _error(self, name: str, allowed: str) -> InvalidJobError:
        """Return the error about a field, with what is allowed."""
        return InvalidJobError(self.job_id, name, getattr(self, name), allowed)


@lru_cache(1 << 12)  # the engine asks for it at each change, and many jobs have the same curves
def _sensitivity(cpus: Curve, memory: Curve) -> Sensitivity:
    return Sensitivity(cpus, memory)


KINDS: Mapping[str, Kind] = {item.name: item.metadata["kind"] for item in fields(Job) if item.metadata}
"""Kinds of the fields of a job, by name."""

# None is a valid value of the fields whose default it is.
_REQUIRED = frozenset(item.name for item in fields(Job) if item.default is not None)

NOT_IN_A_COLUMN = ("plan", "past")  # fields that are not the value of one column in a file

_WITH_DEFAULT = [item.name for item in fields(Job) if item.default is not MISSING]

# The first two fields with a default are `line`, which a file does not state, and `duration`.
OPTIONS = tuple(name for name in _WITH_DEFAULT[2:] if name not in NOT_IN_A_COLUMN)
"""Optional fields in a file, in the order of the fields; they follow `duration`."""

# `_is_plainly_right` checks these options one by one. It compares all others, which few jobs have, with their defaults.
_CHECKED_AT_A_GLANCE = ("user", "queue", "priority", "job_name", "qos", "num_nodes")
_UNCHECKED_OPTIONS = tuple(name for name in OPTIONS if name not in _CHECKED_AT_A_GLANCE)
_OTHER_OPTIONS = (*_UNCHECKED_OPTIONS, *NOT_IN_A_COLUMN)
_other_options = attrgetter(*_OTHER_OPTIONS)
_NO_OTHER_OPTIONS = tuple(item.default for item in fields(Job) if item.name in _OTHER_OPTIONS)
