"""The jobs of `squeue --json`, as plain values.

A value that is missing or damaged gets a default, so that one bad field does not lose the job. Only a job without an
id, a state or a readable list of nodes is left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from polluxsim.logs.live.loose_json import JsonObject, is_infinite, number, text, whole, words
from polluxsim.logs.site.hostlist import expanded
from polluxsim.logs.site.squeue import HELD, IMPOSSIBLE, LIMITED, PENDING, RUNNING

GPUS = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?P<kind>[^:=,(]*[^:=,(\d][^:=,(]*))?(?:[:=](?P<count>\d{1,6}))?(?=[,(]|$)"
)
"""GPUs in a list of TRES, like gres:gpu:4, gres/gpu:a100:4 or gres/gpu=4; a bare gpu is one."""

UNLIMITED = 365 * 86_400  # time limit of a job without one: slurmctld plans with a year [s]


class StateJob(NamedTuple):
    """A job of the queue. Times are seconds since 1970-01-01 UTC."""

    name: str  # its id
    state: str  # PENDING, RUNNING, COMPLETING or the state in which it ended
    reason: str
    priority: float  # 0 if it is held, or none is stated
    submit: int
    eligible: int
    start: int  # of a pending job: the expected start; 0 for none
    end: int  # expected until it ends; 0 for none
    limit: int  # [s]; `UNLIMITED` without one
    nodes: tuple[str, ...]  # that the job holds
    num_nodes: int
    gpus: int  # on each node
    cpus: int  # on each node; −1 for all CPUs of a node
    gpu_type: str  # empty for any
    states_tasks: bool  # whether it states tasks on each node
    features: frozenset[str]  # that its nodes must have
    required: tuple[str, ...]  # nodes
    excluded: tuple[str, ...]  # nodes
    partitions: tuple[str, ...]
    qos: str
    user: str
    account: str
    title: str  # its name in squeue
    after: tuple[str, ...]  # ids of the jobs that must end first
    special: tuple[str, ...]  # what it uses that the twin does not have, as ends of a sentence on jobs

    @property
    def is_pending(self) -> bool:
        """Return whether the job waits, perhaps in vain."""
        return self.state in PENDING

    @property
    def is_running(self) -> bool:
        """Return whether the job has started and not ended; a suspended job runs, a completing one does not."""
        return self.state in RUNNING

    @property
    def kept_out(self) -> str:
        """Return why a pending job cannot start before someone changes something; empty if it can.

        The text is the end of a sentence on jobs, like "are held".
        """
        # Slurm holds a job by the priority 0.
        if self.priority == 0 or self.reason in HELD:
            return "are held"
        if self.reason in IMPOSSIBLE:
            return f"cannot start ({self.reason})"
        if LIMITED.fullmatch(self.reason):
            return "are stopped by a limit of a user, an account or a QOS"
        return ""


def job_of(values: JsonObject) -> StateJob | None:
    """Return a job of `squeue --json`; None if its id or state is missing, or its list of nodes cannot be read."""
    name = number(values.get("job_id"))
    states = words(values.get("job_state"))
    nodes = expanded(text(values.get("nodes")) or text(values.get("allocated_nodes")))
    if name is None or not states or nodes is None:
        return None
    state = "COMPLETING" if "COMPLETING" in states else states[0]
    num_nodes = max(whole(values.get("node_count"), 1), 1)
    # The nodes of a running job are certain; the count may be a request, like a range.
    if nodes and state in RUNNING:
        num_nodes = len(nodes)
    gpus, gpu_type = _gpus(values, num_nodes)
    return StateJob(
        name=_name(values, int(name)),
        state=state,
        reason=text(values.get("state_reason")),
        priority=number(values.get("priority")) or 0.0,
        submit=whole(values.get("submit_time")),
        eligible=whole(values.get("eligible_time")),
        start=whole(values.get("start_time")),
        end=whole(values.get("end_time")),
        limit=_limit(values),
        nodes=tuple(nodes),
        num_nodes=num_nodes,
        gpus=gpus,
        cpus=_cpus(values, num_nodes),
        gpu_type=gpu_type,
        states_tasks=whole(values.get("tasks_per_node")) > 0,
        features=frozenset(filter(None, re.split(r"[&,]", text(values.get("features"))))),
        required=tuple(expanded(text(values.get("required_nodes"))) or ()),
        excluded=tuple(expanded(text(values.get("excluded_nodes"))) or ()),
        partitions=tuple(filter(None, text(values.get("partition")).split(","))),
        qos=text(values.get("qos")),
        user=text(values.get("user_name")),
        account=text(values.get("account")),
        title=text(values.get("name")),
        after=tuple(re.findall(r"(?<=[:,?])(\d+)", text(values.get("dependency")))),
        special=_special(values),
    )


def _limit(values: JsonObject) -> int:
    """Return the time limit of a job [s]; `UNLIMITED` if it has none, or none that can be read."""
    minutes = number(values.get("time_limit"))
    if minutes is None or is_infinite(values.get("time_limit")):
        return UNLIMITED
    # A job needs some time, also where a damaged limit is 0.
    return max(int(minutes), 1) * 60


def _cpus(values: JsonObject, num_nodes: int) -> int:
    """Return the CPUs of a job on each node, rounded up; −1 for all CPUs of its nodes."""
    # The versions of Slurm write an exclusive job as "none", for no sharing, or as EXCLUSIVE.
    sharing = text(values.get("shared")) or text(values.get("exclusive"))
    if sharing == "none" or "EXCLUSIVE" in words(values.get("shared")):
        return -1
    cpus = whole(values.get("cpus"), num_nodes)
    return max(-(-cpus // num_nodes), 1)


def _name(values: JsonObject, number_of_job: int) -> str:
    """Return the id of a job. The tasks of an array that have not started are one job, under the id of the array."""
    array = whole(values.get("array_job_id"))
    task = number(values.get("array_task_id"))
    if array and task is not None:
        return f"{array}_{int(task)}"
    return str(array or number_of_job)


def _gpus(values: JsonObject, num_nodes: int) -> tuple[int, str]:
    """Return the GPUs of a job on each node, rounded up, and their type; empty for any type."""
    # A request by node or by task is exact. The total by job is the last resort, because it need not divide evenly.
    count, kind = _in_tres(text(values.get("tres_per_node")))
    if count:
        return count, kind
    tasks = max(whole(values.get("tasks"), num_nodes), 1)
    count, kind = _in_tres(text(values.get("tres_per_task")))
    if count:
        return -(-count * tasks // num_nodes), kind
    for key in ("tres_per_job", "tres_alloc_str", "tres_req_str"):
        count, kind = _in_tres(text(values.get(key)))
        if count:
            return -(-count // num_nodes), kind
    return 0, ""


def _in_tres(tres: str) -> tuple[int, str]:
    """Return the GPUs in a list of TRES, and the last type that it names; empty without one.

    >>> _in_tres("gres:gpu:4"), _in_tres("cpu=8,gres/gpu:a100=2"), _in_tres("gres/gpu"), _in_tres("cpu=2")
    ((4, ''), (2, 'a100'), (1, ''), (0, ''))
    """
    total = 0
    kind = ""
    for match in GPUS.finditer(tres):
        count = int(match["count"] or 1)
        if match["kind"] and total == count:
            # A list has the GPUs of all types, and then those of each type.
            kind = match["kind"]
            continue
        total += count
        kind = match["kind"] or kind
    return total, kind


def _special(values: JsonObject) -> tuple[str, ...]:
    """Return what a job uses that the twin does not have, as ends of a sentence on jobs."""
    parts = []
    if whole(values.get("het_job_id")):
        parts.append("are parts of a heterogeneous job")
    if text(values.get("licenses")):
        parts.append("need licences")
    if text(values.get("resv_name")):
        parts.append("are in a reservation")
    if text(values.get("array_task_string")):
        parts.append("are arrays, of which one task is shown")
    if "," in text(values.get("partition")):
        parts.append("name several partitions, whose nodes are pooled")
    return tuple(parts)
