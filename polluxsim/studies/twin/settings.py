"""The parameters of Slurm's schedulers of a live cluster: given, read, or inferred from its expected starts.

Slurm writes its keys with capital letters at will, so that keys are compared in small letters. A value that cannot be
read counts as unused, or as 0, and raises no error: the files are those of another system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError
from polluxsim.logs.live.nodes import minutes
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.policy import Slurm
from polluxsim.run.named_policies import named_policy

EACH_SECOND: Mapping[str, Any] = {
    "bf_interval": 1,
    "bf_resolution": 1,
    "sched_interval": 1,
    "batch_sched_delay": 0,
    "sched_min_interval": 0,
}
"""Parameters of an installation whose schedulers run each second, like those of the recorded runs."""

CONFIG_NAMES = {
    "schedulertype": "scheduler_type", "killwait": "kill_wait", "overtimelimit": "over_time_limit",
    "prioritytype": "priority_type", "priorityweightjobsize": "priority_weight_job_size",
    "priorityweightage": "priority_weight_age", "priorityfavorsmall": "priority_favor_small",
    "prioritymaxage": "priority_max_age", "prioritycalcperiod": "priority_calc_period",
    "priorityweightfairshare": "priority_weight_fairshare", "prioritydecayhalflife": "priority_decay_half_life",
}  # fmt: skip
"""Parameters of the policy by the keys of slurm.conf in small letters. SchedulerParameters has further ones."""

IN_MINUTES = ("priority_max_age", "priority_calc_period", "priority_decay_half_life")
"""Parameters in minutes that slurm.conf states as a time, like 7-0."""

FLAGS = ("bf_running_job_reserve", "assoc_limit_stop")  # parameters that are true if they stand alone


class StatedParameters(NamedTuple):
    """What slurm.conf states about the policy."""

    values: Mapping[str, Any]  # parameters of the policy
    unused: Sequence[str]  # parts of SchedulerParameters that the policy does not have


def stated(settings: Mapping[str, str]) -> StatedParameters:
    """Return the parameters of the policy `slurm` in the settings of slurm.conf or `scontrol show config`.

    Keys other than those in `CONFIG_NAMES` and SchedulerParameters are neither used nor returned.
    """
    values: dict[str, Any] = {}
    unused: list[str] = []
    known = {field.name for field in fields(Slurm) if field.init}
    for key, value in settings.items():
        name = CONFIG_NAMES.get(key.lower())
        if name is not None and value not in ("", "(null)"):
            values[name] = _value(name, value)
        if key.lower() != "schedulerparameters":
            continue
        # scontrol prints (null) for a setting without a value.
        for part in filter(None, value.replace("(null)", "").split(",")):
            parameter, equals, number = part.strip().partition("=")
            if parameter in FLAGS:
                values[parameter] = number.lower() not in ("0", "no", "false")
            elif parameter in known and equals and number.isdecimal():
                values[parameter] = int(number)
            else:
                unused.append(part)
    return StatedParameters(values, unused)


def _value(name: str, text: str) -> Any:
    """Return the value of a parameter in the form of the policy; 0 for a number that cannot be read."""
    if name in ("scheduler_type", "priority_type"):
        return text
    if name == "priority_favor_small":
        return text.lower() in ("yes", "1", "true")
    if name in IN_MINUTES:
        # Only the half-life may be 0: usage never halves.
        if name == "priority_decay_half_life":
            return minutes(text) // 60
        return max(minutes(text) // 60, 1)
    # scontrol prints units behind numbers, like "30 sec".
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def parameters_of(values: Mapping[str, Any]) -> Parameters:
    """Return the parameters of the schedulers, without those of the order of the queue."""
    names = {field.name for field in fields(Parameters) if field.init}
    return Parameters(**{name: value for name, value in values.items() if name in names})


def given_policy(text: str) -> Slurm:
    """Return the policy that a user names. Raise InvalidConfigError if there is none, or it is not Slurm's."""
    policy = named_policy(text).make()
    if not isinstance(policy, Slurm):
        raise InvalidConfigError(f"--policy is {text}, must be Slurm's, like 'slurm(bf_interval=60)'")
    return policy


def candidates() -> list[tuple[str, Parameters]]:
    """Return the parameters that are tried if a state does not tell them, with their names, the likeliest first."""
    return [("Slurm's defaults", Parameters()), ("schedulers in each second", Parameters(**EACH_SECOND))]
