"""Accounts and QOS as `sacctmgr` states them: the tree of accounts with their users, shares and limits.

A user writes `policy.accounts` and `policy.qos`, with Slurm's names:
`accounts={physics: {fairshare: 3, users: {ada: 1, bob: 2}, GrpTRES: {gpu: 16}}, theory: {parent: physics, MaxJobs: 4}}`
and `qos={high: {Priority: 100, MaxTRESPU: {gpu: 8}, MaxJobsPU: 4, Preempt: [normal]}}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, allowed_among, invalid_setting, short
from polluxsim.common.values import NonNegativeInt, PositiveInt, check

TRES = ("gpu", "cpu", "mem", "node")
"""Resources that a limit counts: GPUs, CPUs, memory [MB] and nodes."""

# Grp limits all jobs together, and Max each job or user; PU stands for "per user", PA for "per account".
OF_TRES = ("GrpTRES", "MaxTRES", "MaxTRESPU", "MaxTRESPA")
OF_JOBS = ("GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA")
LIMITS_OF_ACCOUNT = ("GrpTRES", "GrpJobs", "MaxTRES", "MaxJobs")
LIMITS_OF_QOS = ("GrpTRES", "GrpJobs", "MaxTRES", "MaxTRESPU", "MaxTRESPA", "MaxJobsPU", "MaxJobsPA")


class SlurmAccount(NamedTuple):
    """An account. Its limits are by name and resource; the resource `jobs` counts running jobs."""

    parent: str  # empty below the root
    shares: int
    users: Mapping[str, int]  # shares by name
    limits: Mapping[tuple[str, str], int]


class Qos(NamedTuple):
    """A quality of service. Its limits are by name and resource, like those of an account."""

    priority: int
    preempts: frozenset[str]
    limits: Mapping[tuple[str, str], int]


class Accounts:
    """The tree of accounts. It has no loops, because `read_accounts` refuses them."""

    def __init__(self, by_name: Mapping[str, SlurmAccount]) -> None:
        self.by_name = by_name
        self._account_of: dict[str, str] = {}
        for name, account in by_name.items():
            # Each job needs one account, so a user of several accounts uses the first one.
            for user in account.users:
                self._account_of.setdefault(user, name)

    def of_user(self, user: str) -> str:
        """Return the first account that lists a user; empty without one."""
        return self._account_of.get(user, "")

    def path(self, account: str) -> list[str]:
        """Return an account and the accounts above it; empty for an unknown account."""
        path = []
        while account in self.by_name:
            path.append(account)
            account = self.by_name[account].parent
        return path

    def children(self, account: str) -> list[str]:
        """Return the accounts directly below an account; those below the root for an empty name."""
        return [name for name, child in self.by_name.items() if child.parent == account]


NO_ACCOUNTS = Accounts({})


def read_accounts(setting: Mapping[str, Any]) -> Accounts:
    """Return the tree of accounts that a user writes as `policy.accounts`.

    Raise InvalidConfigError if a key is unknown, a value invalid, a parent missing, or an account above itself.
    """
    by_name = {}
    for name, entry in setting.items():
        by_name[str(name)] = _account(f"policy.accounts.{name}", entry)
    # A parent may come after its children, so parents are checked when all accounts are read.
    for name, account in by_name.items():
        if account.parent and account.parent not in by_name:
            allowed = allowed_among(account.parent, list(by_name))
            raise InvalidConfigError(f"policy.accounts.{name}.parent is {account.parent!r}, {allowed}")
    accounts = Accounts(by_name)
    for name in by_name:
        _check_above(name, by_name)
    return accounts


def _account(setting_path: str, entry: Any) -> SlurmAccount:
    """Return an account that a user writes. Raise InvalidConfigError if a key is unknown, or a value invalid."""
    _check_keys(setting_path, entry, ("parent", "fairshare", "users", *LIMITS_OF_ACCOUNT))
    users = entry.get("users", {})
    if not isinstance(users, Mapping):
        raise invalid_setting(f"{setting_path}.users", users, "shares by user, like {ada: 1}")
    for user, shares in users.items():
        check(f"{setting_path}.users.{user}", shares, NonNegativeInt)
    shares = entry.get("fairshare", 1)
    check(f"{setting_path}.fairshare", shares, NonNegativeInt)
    parent = entry.get("parent") or ""
    return SlurmAccount(str(parent), shares, dict(users), _limits(setting_path, entry, LIMITS_OF_ACCOUNT))


def _check_above(name: str, by_name: Mapping[str, SlurmAccount]) -> None:
    """Raise InvalidConfigError if an account is above itself.

    The climb ends after as many steps as there are accounts, also in a loop that does not have this account.
    """
    above = by_name[name].parent
    for _ in by_name:
        if above == name:
            raise InvalidConfigError(f"policy.accounts.{name} is above itself; correct a parent")
        above = by_name[above].parent if above else ""


def read_qos(setting: Mapping[str, Any]) -> dict[str, Qos]:
    """Return the qualities of service that a user writes as `policy.qos`, by name.

    Raise InvalidConfigError if a key is unknown, or a value invalid.
    """
    qualities = {}
    for name, entry in setting.items():
        setting_path = f"policy.qos.{name}"
        _check_keys(setting_path, entry, ("Priority", "Preempt", *LIMITS_OF_QOS))
        priority = entry.get("Priority", 0)
        check(f"{setting_path}.Priority", priority, NonNegativeInt)
        preempts = entry.get("Preempt", ())
        if isinstance(preempts, str) or not isinstance(preempts, Sequence):
            raise invalid_setting(f"{setting_path}.Preempt", preempts, "names of QOS, like [normal]")
        for other in preempts:
            if other not in setting:
                raise InvalidConfigError(
                    f"{setting_path}.Preempt names {other!r}, {allowed_among(other, list(setting))}"
                )
        qualities[str(name)] = Qos(priority, frozenset(preempts), _limits(setting_path, entry, LIMITS_OF_QOS))
    return qualities


def _check_keys(setting_path: str, entry: object, keys: Sequence[str]) -> None:
    """Raise InvalidConfigError if an entry is no mapping of these keys."""
    if not isinstance(entry, Mapping):
        raise InvalidConfigError(f"{setting_path} is {short(entry)}, must be a mapping, like {{GrpTRES: {{gpu: 8}}}}")
    for key in entry:
        if key not in keys:
            raise InvalidConfigError(f"{setting_path} has the key {str(key)!r}, {allowed_among(str(key), keys)}")


def _limits(setting_path: str, entry: Mapping[str, Any], names: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return the limits of an entry by name and resource. Raise InvalidConfigError if one is invalid."""
    limits = {}
    for name in names:
        if name not in entry:
            continue
        if name in OF_JOBS:
            check(f"{setting_path}.{name}", entry[name], PositiveInt)
            limits[name, "jobs"] = int(entry[name])
            continue
        if not isinstance(entry[name], Mapping):
            raise invalid_setting(f"{setting_path}.{name}", entry[name], "amounts by resource, like {gpu: 8}")
        for resource, most in entry[name].items():
            if resource not in TRES:
                allowed = allowed_among(str(resource), TRES)
                raise InvalidConfigError(f"{setting_path}.{name} has the key {str(resource)!r}, {allowed}")
            check(f"{setting_path}.{name}.{resource}", most, NonNegativeInt)
            limits[name, str(resource)] = int(most)
    return limits
