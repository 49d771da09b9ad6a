"""A ledger of service: the times for which jobs have held GPUs, charged to jobs, users or queues.

The balance of an account is the GPU time of its jobs. With a half-life, a GPU second of the past counts the less the
longer ago it was: a charge of age a counts 2^(−a / half-life). `_weight` returns this weight, and `_weighted` returns
its integral, for GPUs that were held until now.

Invariants: a job is charged to one account at a time; the balance of an account depends on the times at which its jobs
held GPUs, and not on how often a policy decided.

The trap: a job may lose its GPUs between two decisions, by its end or a failure. `settle` finds the time from the
service that the job has attained, so it must be called before anything else at a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import chain
from math import inf, log
from typing import Generic, NamedTuple, TypeVar

from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, Decision, JobView

NO_USER = ""  # user of the jobs that have no user
NO_QUEUE = "none"  # queue of the jobs that have no queue

AccountT = TypeVar("AccountT", bound="Hashable")


def user_of(job: JobView) -> str:
    """Return the user of a job."""
    return job.user or NO_USER


def queue_of(job: JobView) -> str:
    """Return the queue of a job."""
    return job.queue or NO_QUEUE


class AccountHolder(NamedTuple):
    """GPUs that a job holds, and for which an account is charged."""

    job: JobView
    account: Hashable
    gpus: int  # GPUs that count for the charge
    start: float  # time at which the job got the GPUs [s]
    charged_from: float  # time from which the account is charged [s]
    attained_service: float  # service that the job had attained before [GPU s]


class Ledger(Generic[AccountT]):
    """Charges accounts for the time that jobs hold GPUs.

    An account is a job, a user, a queue, or a pair such as (job, GPU type). A policy calls `settle` when a decision
    begins, and `follow` or `hold` when it has decided. A job that ends or is evicted is charged until it lost its GPUs.
    A rejected job holds no GPUs, and is not charged. After the `half_life`, a charge counts half [s].
    """

    def __init__(self, half_life: float = inf) -> None:
        self._half_life = half_life
        # Charges for holdings that are over [GPU s], and the time to which they have decayed [s].
        self._charges: dict[AccountT, tuple[float, float]] = {}
        self._holdings: dict[JobId, AccountHolder] = {}
        self._by_account: dict[AccountT, dict[JobId, AccountHolder]] = {}

    def settle(self, view: ClusterView) -> None:
        """Charge the jobs that ended or were evicted since the last decision, until they lost their GPUs."""
        for job_id in chain(view.changes.ended, view.changes.evicted):
            holding = self._holdings.get(job_id)
            if holding is not None:
                service = holding.job.attained_service - holding.attained_service
                end = holding.start + service / holding.job.num_replicas
                # Rounding may put the end behind the present time.
                self.stop(job_id, min(end, view.time))

    def start(self, now: float, job: JobView, account: AccountT, *, gpus: int, delay: float = 0.0) -> None:
        """Begin to charge an account for GPUs that a job gets now, after a delay [s]."""
        holding = AccountHolder(job, account, gpus, now, now + delay, job.attained_service)
        self._holdings[job.job_id] = holding
        self._by_account.setdefault(account, {})[job.job_id] = holding

    def stop(self, job_id: JobId, time: float) -> None:
        """Charge the account of a job until a time, at which the job loses its GPUs [s]."""
        holding = self._holdings.pop(job_id)
        account: AccountT = holding.account  # type: ignore[assignment]
        del self._by_account[account][job_id]
        if not self._by_account[account]:
            del self._by_account[account]
        earlier_charge, since = self._charges.get(account, (0.0, time))
        charge = holding.gpus * self._weighted(time - holding.charged_from)
        self._charges[account] = earlier_charge * self._weight(time - since) + charge, time

    def follow(
        self,
        view: ClusterView,
        decision: Decision,
        account_of: Callable[[JobView], AccountT],
        started: Iterable[JobView] | None = None,
    ) -> None:
        """Record the gangs that get GPUs by a decision, and the gangs that lose their GPUs.

        A gang that another policy started before a fork is charged from now on. `started` contains the waiting jobs
        that get GPUs, in order of submission; by default all waiting jobs are read to find them.
        """
        allocation = decision.allocation
        # A copy, because `stop` removes holdings. A decision that keeps the other jobs names all that lose their GPUs.
        may_lose_gpus = tuple(allocation if decision.others_keep else self._holdings)
        for job_id in may_lose_gpus:
            if not allocation.get(job_id) and job_id in self._holdings:
                self.stop(job_id, view.time)
        begun: list[JobView] = []
        # A decision without placements starts no job. The waiting jobs are not read then, because they may be many.
        if allocation:
            waiting = view.waiting if started is None else started
            begun = [job for job in waiting if allocation.get(job.job_id)]
        for job in view.changes.arrived:
            # A job that arrives with GPUs was started by another policy, before a fork.
            placement_if_left_out = job.placement if decision.others_keep else ()
            if job.placement and allocation.get(job.job_id, placement_if_left_out):
                begun.append(job)
        for job in begun:
            self.start(view.time, job, account_of(job), gpus=job.num_replicas)

    def hold(
        self,
        now: float,
        accounts: Mapping[JobId, tuple[JobView, AccountT]],
        delay_of: Callable[[JobView], float] = lambda job: 0.0,
    ) -> None:
        """Record that exactly these jobs hold GPUs from now on; their accounts are charged 1 GPU s per second.

        A job that held no GPUs before is charged after a delay [s].
        """
        before = dict(self._holdings)
        for job_id, holding in before.items():
            if job_id not in accounts or accounts[job_id][1] != holding.account:
                self.stop(job_id, now)
        for job_id, (job, account) in accounts.items():
            if job_id in self._holdings:
                continue
            # A job whose account changes has held GPUs until now, and does not restart.
            delay = 0.0 if job_id in before else delay_of(job)
            self.start(now, job, account, gpus=1, delay=delay)

    def holding(self, job_id: JobId) -> AccountHolder | None:
        """Return the GPUs that a job holds, or None."""
        return self._holdings.get(job_id)

    def balance(self, account: AccountT, now: float) -> float:
        """Return the charges of an account until now [GPU s]."""
        earlier_charge, since = self._charges.get(account, (0.0, now))
        balance = earlier_charge * self._weight(now - since)
        for holding in self._by_account.get(account, {}).values():
            balance += holding.gpus * self._weighted(now - holding.charged_from)
        return balance

    def set_balance(self, account: AccountT, value: float, now: float) -> None:
        """Set the charges of an account until now [GPU s]."""
        self._charges[account] = value, now
        for job_id, holding in self._by_account.get(account, {}).items():
            # The new balance contains what the holding was charged until now.
            charged_later = holding._replace(charged_from=max(holding.charged_from, now))
            self._holdings[job_id] = charged_later
            self._by_account[account][job_id] = charged_later

    def accounts(self) -> list[AccountT]:
        """Return the accounts that have a balance or a job that holds GPUs."""
        return list(dict.fromkeys(chain(self._charges, self._by_account)))

    def has(self, account: AccountT) -> bool:
        """Return whether an account has a balance or a job that holds GPUs."""
        return account in self._charges or account in self._by_account

    def keep(self, accounts: Iterable[AccountT]) -> None:
        """Close all other accounts. Their jobs must not hold GPUs."""
        open_accounts = set(accounts)
        self._charges = {account: charge for account, charge in self._charges.items() if account in open_accounts}

    def _weight(self, age: float) -> float:
        """Return the weight of a charge of an age [s]."""
        if self._half_life == inf:
            return 1.0
        return float(2.0 ** (-age / self._half_life))

    def _weighted(self, length: float) -> float:
        """Return the integral of the weight over a length of time until now [s]."""
        # A job is not charged during its delay, in which the length is negative.
        if length <= 0:
            return 0.0
        if self._half_life == inf:
            return length
        mean_life = self._half_life / log(2.0)
        return mean_life * (1.0 - self._weight(length))
