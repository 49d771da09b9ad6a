"""Read the output of `sacctmgr dump`: the accounts of a cluster with their parents, users, shares and limits.

A line is `KIND - 'NAME'` with options, like `Account - 'lab':Fairshare=10:GrpTRES=gres/gpu=8`. `Parent` names the
account to which the next lines belong. Kinds and options are compared in small letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidInputError, bad_line, reading, short
from polluxsim.logs.live.slurm_conf import Unused

# sacctmgr writes quoted text without escapes. So a quote ends it only before an option, a comment, or the end.
QUOTED = r"'.*?'(?=:\w+=|\s*(?:#|$))|\".*?\"(?=:\w+=|\s*(?:#|$))"
HEAD = re.compile(rf"(cluster|parent|account|user|qos)\s*-\s*({QUOTED}|[^:#'\"]+)", re.IGNORECASE)
# The colon before a type of GPUs, like gres/gpu:h100=8, begins no option.
OPTION = re.compile(rf":(\w+)=({QUOTED}|(?:gres/\w+:|[^:#])*)")

ROOT = "root"

LIMITS_OF_TRES = {"grptres": "GrpTRES", "maxtres": "MaxTRES", "maxtresperjob": "MaxTRES"}
LIMITS_OF_JOBS = {"grpjobs": "GrpJobs", "maxjobs": "MaxJobs"}
"""Limits of accounts in the policy `slurm`, by the option in small letters."""

RESOURCES = {"gres/gpu": "gpu", "cpu": "cpu", "mem": "mem", "node": "node"}
MEGABYTES = {"": 1, "m": 1, "g": 1024, "t": 1024**2}  # in a unit of memory

TEXTS = ("description", "organization", "adminlevel")
"""Options without an effect on jobs, in small letters. They are listed once and not for each line."""


class DumpLine(NamedTuple):
    """A line of a dump."""

    number: int
    text: str  # without comment
    kind: str  # in small letters
    name: str
    options: Mapping[str, str]  # values without quotes


@dataclass
class AccountDump:
    """What a dump states, in the form of `policy.accounts`."""

    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    unused: list[Unused] = field(default_factory=list)

    @property
    def num_users(self) -> int:
        """Return the number of users of the accounts."""
        return sum(len(entry.get("users", ())) for entry in self.accounts.values())

    @property
    def has_limits(self) -> bool:
        """Return whether an account has a limit."""
        names = {*LIMITS_OF_TRES.values(), *LIMITS_OF_JOBS.values()}
        return any(names & set(entry) for entry in self.accounts.values())


def read_dump(path: Path) -> AccountDump:
    """Return the accounts in an output of `sacctmgr dump`, with the lines and options that are not used.

    The policy has one account for each user: the default account, if the user belongs to it, or else the first one.
    Raise InvalidInputError if the file cannot be read or is no dump, or the line of an account is missing.
    """
    lines = list(_lines(path))
    if not lines:
        raise InvalidInputError(f"{path}: no line is like Account - 'lab'; give the output of sacctmgr dump")
    account_of = _accounts_of_users(lines)
    dump = AccountDump()
    texts: dict[str, list[int]] = {}  # numbers of lines by option
    users = set[str]()
    parent = ROOT
    for line in lines:
        unused: list[str] = []
        if line.kind == "parent":
            parent = line.name
            if parent not in (ROOT, *dump.accounts):
                why = f"no line Account - '{parent}' is before it"
                raise bad_line(path, line.number, f"{line.text!r}: {why}; give the whole output of sacctmgr dump")
        elif line.kind == "account" and line.name not in (ROOT, *dump.accounts):
            entry: dict[str, Any] = {} if parent == ROOT else {"parent": parent}
            dump.accounts[line.name] = entry
            unused = _add_to_account(entry, line.options)
        elif line.kind == "user" and line.name not in users and account_of[line.name] == parent != ROOT:
            users.add(line.name)
            unused = _add_user(dump.accounts[parent], line)
        else:
            dump.unused.append(Unused(path.name, line.number, line.text))
        to_list = _without_texts(unused, line.number, texts)
        if to_list:
            dump.unused.append(Unused(path.name, line.number, f"{line.kind} {line.name}: {':'.join(to_list)}"))
    for key, numbers in texts.items():
        lines_with_key = "1 line" if len(numbers) == 1 else f"{len(numbers)} lines"
        dump.unused.append(Unused(path.name, numbers[0], f"{key} (on {lines_with_key})"))
    dump.unused.sort(key=lambda line: line.number)
    return dump


def _without_texts(options: list[str], number: int, texts: dict[str, list[int]]) -> list[str]:
    """Return the options of a line that may have an effect on jobs, and add the line to those of each other option."""
    effective = []
    for option in options:
        key = option.partition("=")[0]
        if key.lower() in TEXTS:
            texts.setdefault(key, []).append(number)
        else:
            effective.append(option)
    return effective


def _lines(path: Path) -> Iterator[DumpLine]:
    """Yield the lines of a dump without comments. Raise InvalidInputError if one is no line of a dump."""
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; check the path")
    with reading(path):
        texts = path.read_bytes().decode(errors="replace").splitlines()
    for number, text in enumerate(texts, start=1):
        plain = text.strip()
        if not plain or plain.startswith("#"):
            continue
        line = _line(number, plain)
        if line is None:
            what = "must be like Account - 'lab':Fairshare=1; give the output of sacctmgr dump"
            raise bad_line(path, number, f"{short(plain)} {what}")
        yield line


def _line(number: int, text: str) -> DumpLine | None:
    """Return a line of a dump; None if it is none.

    >>> line = _line(3, "Account - 'lab':Description='light: a, b':GrpTRES=gres/gpu:h100=8,cpu=4  # since May")
    >>> line.kind, line.name, dict(line.options)
    ('account', 'lab', {'Description': 'light: a, b', 'GrpTRES': 'gres/gpu:h100=8,cpu=4'})
    """
    head = HEAD.match(text)
    if head is None:
        return None
    options = {}
    end = head.end()
    while (option := OPTION.match(text, end)) is not None:
        options[option[1]] = _without_quotes(option[2])
        end = option.end()
    rest = text[end:].strip()
    if rest and not rest.startswith("#"):
        return None
    return DumpLine(number, text[:end].strip(), head[1].lower(), _without_quotes(head[2]), options)


def _without_quotes(value: str) -> str:
    """Return a value without spaces around it, and without its pair of quotes."""
    plain = value.strip()
    if len(plain) >= 2 and plain[0] == plain[-1] and plain[0] in "'\"":
        return plain[1:-1]
    return plain


def _accounts_of_users(lines: list[DumpLine]) -> dict[str, str]:
    """Return the account of each user: the default account, if the user belongs to it, or else the first one."""
    accounts: dict[str, list[str]] = {}
    defaults: dict[str, str] = {}
    parent = ROOT
    for line in lines:
        if line.kind == "parent":
            parent = line.name
        if line.kind == "user":
            accounts.setdefault(line.name, []).append(parent)
            for key, value in line.options.items():
                if key.lower() == "defaultaccount":
                    defaults[line.name] = value
    account_of = {}
    for user, names in accounts.items():
        default = defaults.get(user, "")
        account_of[user] = default if default in names else names[0]
    return account_of


def _add_to_account(entry: dict[str, Any], options: Mapping[str, str]) -> list[str]:
    """Add the share and the limits of an account to its entry, and return the options that are not used."""
    unused = []
    for key, value in options.items():
        small = key.lower()
        if small == "fairshare" and value.isdecimal():
            entry["fairshare"] = int(value)
        elif small in LIMITS_OF_JOBS and value.isdecimal() and int(value) > 0:
            entry[LIMITS_OF_JOBS[small]] = int(value)
        elif small in LIMITS_OF_TRES:
            amounts, other = _amounts(value)
            if amounts:
                entry[LIMITS_OF_TRES[small]] = amounts
            if other:
                unused.append(f"{key}={','.join(other)}")
        else:
            unused.append(_as_written(key, value))
    return unused


def _add_user(account: dict[str, Any], line: DumpLine) -> list[str]:
    """Add a user with a share to the entry of an account, and return the options that are not used."""
    shares = 1
    unused = []
    for key, value in line.options.items():
        if key.lower() == "fairshare" and value.isdecimal():
            shares = int(value)
        elif key.lower() != "defaultaccount":
            unused.append(_as_written(key, value))
    account.setdefault("users", {})[line.name] = shares
    return unused


def _amounts(limit: str) -> tuple[dict[str, int], list[str]]:
    """Return the amounts of a limit by resource of the policy, and the parts of the limit that are not used.

    >>> _amounts("gres/gpu=8,mem=2G,billing=5,cpu=-1")
    ({'gpu': 8, 'mem': 2048}, ['billing=5', 'cpu=-1'])
    """
    amounts = {}
    unused = []
    for part in filter(None, limit.split(",")):
        resource, _, number = part.strip().rpartition("=")
        match = re.fullmatch(r"(\d+)([mgt]?)", number.lower())
        name = RESOURCES.get(resource.lower())
        # Only memory has a unit.
        if match is None or name is None or (match[2] and name != "mem"):
            unused.append(part)
        else:
            amounts[name] = int(match[1]) * MEGABYTES[match[2]]
    return amounts, unused


def _as_written(key: str, value: str) -> str:
    """Return an option in the form of a dump, with quotes where colons or spaces need them."""
    return f"{key}='{value}'" if re.search(r"[:\s]", value) else f"{key}={value}"
