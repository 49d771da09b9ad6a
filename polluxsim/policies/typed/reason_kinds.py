"""Kinds of reasons of the policies for GPU types, beside those of `polluxsim.policies.tools.reason_kinds`.

The sentences are templates. `polluxsim.policies.contract.reasons` explains how to read one.
"""

from __future__ import annotations

from polluxsim.policies.contract.reasons import JobSeen, RoundSeen
from polluxsim.policies.contract.view import Reason, ReasonKind
from polluxsim.policies.tools.reason_kinds import GANG_UNITS


def is_priced_out(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether another job holds GPUs, which raises the price."""
    return any(gpus > 0 for name, gpus in seen.held.items() if name != job.job_id)


_WORTH = (
    "A GPU has a higher price, the more GPUs of its type are taken. The utility of the job is {worth:.3g} times the "
    "price of its {gpus_needed:GPU}"
)

WORTH_ITS_PRICE = ReasonKind(
    "worth-its-price",
    f"{_WORTH}[left_type? on type {{left_type:label}}], so the policy gives it [gpus_needed=1?this GPU|these GPUs]."
    "[ Its utility for each GPU is {utility_per_gpu:per hour} per hour.][ The GPUs go to the jobs with the largest sum "
    "of utility less price. Of the waiting jobs, {first} has the largest utility for each GPU[left_type? of this "
    "type], {waiting_utility_per_gpu:per hour} per hour, and needs {waiting_gpus:GPU}.]",
    {**GANG_UNITS, "utility_per_gpu": "1/s", "waiting_utility_per_gpu": "1/s", "waiting_gpus": "GPUs"},
    "The utility of a job exceeds the price of its GPUs.",
)
NOT_WORTH_ITS_PRICE = ReasonKind(
    "not-worth-its-price",
    f"{_WORTH}, so the job waits for lower prices.",
    GANG_UNITS,
    "The utility of a job is below the price of its GPUs.",
    excuses_waiting=is_priced_out,
)
PASSED_OVER = ReasonKind(
    "passed-over",
    f"{_WORTH}. The GPUs go to the jobs with the largest sum of utility less price, and this sum is not larger with "
    "this job.[ Its utility for each GPU is {utility_per_gpu:per hour} per hour. The least such utility of a job that "
    "gets GPUs is {least_utility_per_gpu:per hour} per hour, of {first}.]",
    {**GANG_UNITS, "utility_per_gpu": "1/s", "least_utility_per_gpu": "1/s"},
    "The utility of a job exceeds the price of its GPUs, but other jobs gain more.",
    excuses_waiting=is_priced_out,
)

AWAITS_SHARES = ReasonKind(
    "awaits-shares",
    "The job arrived after the policy last computed the shares of the time. It gets a share when the policy computes "
    "them again, at {shares_due:clock} or later.",
    {"shares_due": "s"},
    "A new job waits until shares are computed again.",
)
