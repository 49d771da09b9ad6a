"""Write the configuration of a simulation from the configuration files of Slurm.

The cluster is written as `polluxsim log nodes` would write it. The policy is the shipped configuration of `slurm` with
other values, so that it has all parameters with their explanations. Each account has a line of its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.common.shipped import shipped
from polluxsim.logs.live.account_dump import AccountDump, read_dump
from polluxsim.logs.live.slurm_conf import Unused, read_conf
from polluxsim.logs.site.nodes import cluster_yaml, node_list
from polluxsim.studies.twin.settings import CONFIG_NAMES, stated

POLICY = "policy/slurm.yaml"

ENFORCE = "accountingstorageenforce"
ENFORCING = ("limits", "safe", "all")
"""The key of slurm.conf for limits of accounts, and the values with which they apply, in small letters."""

SPECIAL_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity")
"""Words that YAML does not read as text, in small letters."""


class Written(NamedTuple):
    """The files of a configuration, and the lines of the installation that they do not have."""

    cluster: Path
    policy: Path
    num_nodes: int
    num_gpus: int
    parameters: dict[str, Any]  # those that the installation states
    unused: list[Unused]  # by file and number
    num_accounts: int
    num_users: int  # of the accounts
    slurm_ignores_limits: bool  # whether slurm.conf does not enforce the limits that accounts state


def write_configuration(conf: Path, folder: Path, gres: Path | None = None, accounts: Path | None = None) -> Written:
    """Write `cluster/NAME.yaml` and `policy/NAME.yaml` of an installation.

    NAME is `ClusterName`, or "cluster" without it, with hyphens for characters that a file name should not have. Raise
    InvalidInputError if a file cannot be read or written, or no node has GPUs.
    """
    read = read_conf(conf, gres)
    dump = AccountDump() if accounts is None else read_dump(accounts)
    # A single partition needs no queues, so that jobs of any workload can run.
    has_several = len({node.partitions for node in read.nodes}) > 1 or len(read.partitions) > 1
    of_site = read.nodes if has_several else [node._replace(partitions=()) for node in read.nodes]
    nodes = node_list(conf.name, of_site)
    unused = [*read.unused, *dump.unused]
    used_keys = [*CONFIG_NAMES, "clustername"]
    if dump.accounts:
        used_keys.append(ENFORCE)
    # SchedulerParameters has many parameters in one value, of which some may be used and others not.
    of_conf = stated({key: value for key, (_, value) in read.settings.items()})
    parameters = dict(of_conf.values)
    for key, (line, _) in read.settings.items():
        if key.lower() == "schedulerparameters":
            if of_conf.unused:
                unused.append(Unused(conf.name, line.number, f"{key}={','.join(of_conf.unused)}"))
        elif key.lower() not in used_keys:
            unused.append(Unused(conf.name, *line))
    tiers = {partition.name: partition.tier for partition in read.partitions if partition.tier != 1}
    if tiers:
        parameters["priority_tier"] = tiers
    if dump.accounts:
        parameters["accounts"] = dump.accounts
    name = re.sub(r"[^\w-]", "-", read.name)
    cluster_file = folder / "cluster" / f"{name}.yaml"
    policy_file = folder / "policy" / f"{name}.yaml"
    of_cluster = cluster_yaml(nodes).replace("polluxsim log nodes", "polluxsim twin config", 1)
    _write(cluster_file, of_cluster)
    _write(policy_file, _policy_yaml(conf.name, parameters))
    # The lines come in the order in which a user gave the files.
    order = {conf.name: 0, gres.name if gres else "": 1}
    unused.sort(key=lambda line: (order.get(line.file, 2), line.number))
    # Slurm itself ignores the limits of accounts without this setting.
    enforced = ""
    for key, (_, value) in read.settings.items():
        if key.lower() == ENFORCE:
            enforced = value.lower()
    ignores_limits = dump.has_limits and not any(word in enforced for word in ENFORCING)
    return Written(
        cluster_file,
        policy_file,
        nodes.num_nodes,
        nodes.num_gpus,
        parameters,
        unused,
        len(dump.accounts),
        dump.num_users,
        ignores_limits,
    )


def _policy_yaml(source: str, parameters: dict[str, Any]) -> str:
    """Return the shipped configuration of the policy with other values of some parameters.

    The first line, which describes the shipped file, is replaced.
    """
    lines = [f"# Slurm's policy with the parameters of {source}. Written by 'polluxsim twin config'."]
    for line in (shipped("configs") / POLICY).read_text(encoding="utf-8").splitlines()[1:]:
        name, colon, rest = line.partition(": ")
        if colon and name in parameters:
            comment = rest.partition(" # ")[2]
            if name == "accounts":
                lines.append(f"{name}: # {comment}")
                for account, entry in parameters[name].items():
                    lines.append(f"  {_word(account)}: {_flow(entry)}")
                continue
            lines.append(f"{name}: {_flow(parameters[name])} # {comment}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _flow(value: object) -> str:
    """Return a value in YAML's flow style."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    return _word(value) if isinstance(value, str) else str(value)


def _word(word: str) -> str:
    """Return a word in YAML, with quotes if YAML may read it as something else, like a number or a truth value.

    >>> _word("lab-1"), _word("1001"), _word("no")
    ('lab-1', '"1001"', '"no"')
    """
    is_plain = re.fullmatch(r"[A-Za-z][\w/.-]*", word, re.ASCII) and word.lower() not in SPECIAL_WORDS
    return word if is_plain else json.dumps(word, ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raise InvalidInputError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"{path}: cannot be written ({error.strerror or error}); choose another folder"
        ) from None
