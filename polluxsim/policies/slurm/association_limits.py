"""Limits of accounts and QOS on what their jobs hold at once.

A job that a limit stops waits, and closes nothing. `GrpTRES` and `GrpJobs` count all running jobs of a QOS, or of an
account and the accounts below it; `MaxTRESPU` and `MaxJobsPU` those of a user in a QOS; `MaxTRESPA` and `MaxJobsPA`
those of an account in a QOS; `MaxJobs` those of a user in an account. `MaxTRES` is for each job alone. A limit of the
QOS replaces the limit of the same name and resource of accounts. (Specification, "Preemption, reservations, QOS";
Slurm's "Resource Limits"; sacctmgr(1).)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from polluxsim.policies.slurm.accounts import Accounts, Qos
from polluxsim.policies.slurm.values import Allocated, LimitStop, PendingJob

Group: TypeAlias = tuple[str, ...]  # jobs that are counted together; empty for each job alone


class JobOwner(NamedTuple):
    """Whose a job is."""

    user: str
    account: str
    qos: str


class Limit(NamedTuple):
    """The most of a resource that a group of jobs may hold."""

    group: Group
    name: str  # as sacctmgr names it, like GrpTRES
    resource: str
    most: int


class AssociationLimits:
    """Limits of accounts and QOS, and what running jobs hold of them."""

    def __init__(self, accounts: Accounts, qos: Mapping[str, Qos]) -> None:
        self._accounts = accounts
        self._qos = qos
        self._held = Counter[tuple[Group, str]]()

    def count(self, owner: JobOwner, held: Allocated) -> None:
        """Count what a running job holds."""
        resources = {
            "gpu": sum(on_node.gpus for on_node in held),
            "cpu": sum(on_node.cpus for on_node in held),
            "mem": sum(on_node.memory for on_node in held),
            "node": len(held),
            "jobs": 1,
        }
        self._count(owner, resources)

    def stops(self, job: PendingJob) -> bool:
        """Return whether a limit stops a pending job now."""
        return self.stop(job) is not None

    def stop(self, job: PendingJob) -> LimitStop | None:
        """Return the first limit that stops a pending job now, with what is in use; None if none does."""
        wanted = resources_of(job)
        for limit in self._limits_of(owner_of(job)):
            # A limit on each job alone counts no other job.
            held = self._held[limit.group, limit.resource] if limit.group else 0
            needed = wanted[limit.resource]
            if held + needed > limit.most:
                return LimitStop(limit.name, limit.resource, _in_words(limit.group), limit.most, held, needed)
        return None

    def add(self, job: PendingJob) -> None:
        """Count a job that starts by what it asks for."""
        self._count(owner_of(job), resources_of(job))

    def _count(self, owner: JobOwner, resources: Mapping[str, int]) -> None:
        """Count amounts of resources for all groups of a job."""
        for group in self._groups_of(owner):
            for resource, amount in resources.items():
                self._held[group, resource] += amount

    def _groups_of(self, owner: JobOwner) -> Iterator[Group]:
        """Yield the groups among whose jobs a job counts."""
        yield ("qos", owner.qos)
        yield ("qos and user", owner.qos, owner.user)
        yield ("qos and account", owner.qos, owner.account)
        yield ("account and user", owner.account, owner.user)
        for account in self._accounts.path(owner.account):
            yield ("account", account)

    def _limits_of(self, owner: JobOwner) -> Iterator[Limit]:
        """Yield the limits of a job: those of its QOS, and those of its accounts that the QOS does not replace."""
        of_qos = self._qos[owner.qos].limits if owner.qos in self._qos else {}
        for (name, resource), most in of_qos.items():
            yield Limit(_group_in_qos(name, owner), name, resource, most)
        # The limits for users and jobs are those of the lowest account that states them.
        inherited = set[tuple[str, str]]()
        for account in self._accounts.path(owner.account):
            for (name, resource), most in self._accounts.by_name[account].limits.items():
                # In a QOS, the limit on the jobs of a user has another name than in an account.
                replacing = "MaxJobsPU" if name == "MaxJobs" else name
                if (replacing, resource) in of_qos or (name, resource) in inherited:
                    continue
                # Limits on a whole account apply on each level of the tree.
                if name.startswith("Grp"):
                    yield Limit(("account", account), name, resource, most)
                    continue
                inherited.add((name, resource))
                group = ("account and user", owner.account, owner.user) if name == "MaxJobs" else ()
                yield Limit(group, name, resource, most)


def owner_of(job: PendingJob) -> JobOwner:
    """Return whose a pending job is."""
    return JobOwner(job.user, job.account, job.qos)


def resources_of(job: PendingJob) -> dict[str, int]:
    """Return what a pending job asks for, by resource. All memory of a node, or memory of tasks, counts as 0."""
    request = job.request
    memory = sum(part.nodes * max(part.memory, 0) for part in request.parts)
    return {"gpu": request.gpus, "cpu": request.cpus, "mem": memory, "node": request.nodes, "jobs": 1}


def _in_words(group: Group) -> str:
    """Return whose jobs a limit counts together.

    >>> _in_words(("qos and user", "high", "ada"))
    'user ada in QOS high'
    """
    if not group:
        return ""
    kind, name, *rest = group
    if kind == "qos and user":
        return f"user {rest[0]} in QOS {name}"
    if kind == "qos and account":
        return f"account {rest[0]} in QOS {name}"
    if kind == "account and user":
        return f"user {rest[0]} in account {name}"
    return f"QOS {name}" if kind == "qos" else f"account {name}"


def _group_in_qos(name: str, owner: JobOwner) -> Group:
    """Return the jobs that a limit of a QOS counts together with a job."""
    if name.startswith("Grp"):
        return ("qos", owner.qos)
    if name.endswith("PU"):
        return ("qos and user", owner.qos, owner.user)
    if name.endswith("PA"):
        return ("qos and account", owner.qos, owner.account)
    return ()
