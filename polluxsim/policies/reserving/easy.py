"""EASY backfill, which reserves GPUs for the first job that does not fit.

`Easy` decides the order, which is that of submission. `polluxsim.policies.reserving.backfill` decides the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from polluxsim.common.values import PositiveFloat
from polluxsim.common.written import takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import overestimate_without_effect
from polluxsim.policies.contract.view import ClusterView, Decision, Traits
from polluxsim.policies.reserving.backfill import backfilled
from polluxsim.policies.reserving.limits import Limits
from polluxsim.policies.tools.waiting_orders import SubmissionOrder
from polluxsim.policies.tools.waiting_table import WaitingTable
from polluxsim.workloads.job import Job


@takes_settings("policy")
@dataclass
class Backfill(Policy):
    """Base class of policies that plan with time limits of jobs, and let each job run to its end."""

    overestimate: PositiveFloat = 1.0
    traits: ClassVar[Traits] = Traits(never_preempts=True, keeps_shapes=True, obeys_limits=True, per_type=True)
    _limits: Limits = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._limits = Limits(self.overestimate)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if `overestimate` has no effect."""
        return overestimate_without_effect(self.overestimate, jobs)


@dataclass
class Easy(Backfill):
    """Start whole jobs in order of submission, with EASY backfill and without preemption.

    The first job that does not fit gets a reservation on the nodes that are free for it first if all running jobs end
    at their limits. The limit of a job is its `time_limit`, or a multiple of its true run time.

    Parameters
    ----------
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.

    Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP '95).
    """

    _table: WaitingTable = field(default_factory=WaitingTable, init=False, repr=False, compare=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start waiting jobs in order of submission."""
        self._table.update(view)
        order = SubmissionOrder(self._table)
        return backfilled(view, self._table, order, self._limits, lambda job: {"arrived": job.submit_time})
