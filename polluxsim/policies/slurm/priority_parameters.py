"""The parameters of priority/multifactor, with Slurm's names, units and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from polluxsim.common.values import NonNegativeFloat, NonNegativeInt, OneOf, PositiveInt
from polluxsim.common.written import Name, takes_settings
from polluxsim.policies.slurm.parameters import Parameters

BASIC = "priority/basic"
MULTIFACTOR = "priority/multifactor"
NO_FAIR_TREE = "NO_FAIR_TREE"


@takes_settings("policy")
@dataclass
class PriorityParameters(Parameters):
    """Parameters of the order of the queue.

    Source: slurm.conf(5), `PriorityType`, `PriorityWeight…`, `PriorityMaxAge`, `PriorityCalcPeriod`,
    `PriorityDecayHalfLife`, `PriorityFavorSmall`, `PriorityFlags`, `PriorityTier` and `PriorityJobFactor`.

    Parameters
    ----------
    priority_type
        `PriorityType`: priority/basic is the order of submission; priority/multifactor is a weighted sum of factors.
    priority_weight_age, priority_weight_fairshare, priority_weight_job_size
        `PriorityWeightAge`, `PriorityWeightFairshare` and `PriorityWeightJobSize`.
    priority_weight_partition, priority_weight_qos
        `PriorityWeightPartition` and `PriorityWeightQOS`.
    priority_favor_small
        `PriorityFavorSmall`: whether small jobs have a larger factor of the job size.
    priority_max_age
        `PriorityMaxAge`: time of waiting at which the age counts in full [min].
    priority_calc_period
        `PriorityCalcPeriod`: time between two computations of priorities [min].
    priority_decay_half_life
        `PriorityDecayHalfLife`: time in which the usage of users halves [min]; 0 if it never does.
    priority_flags
        `PriorityFlags`: NO_FAIR_TREE for the classic fair share in place of the fair tree.
    fair_share_dampening_factor
        `FairShareDampeningFactor` of the classic fair share.
    tres_billing_weights
        `TRESBillingWeights`: what a CPU (cpu), a GPU (gpu) and a MB (mem) add to the usage per second; without it, a
        CPU adds 1.
    priority_tier, priority_job_factor
        `PriorityTier` and `PriorityJobFactor` of partitions by name; 1 for others. The queue of a job is its partition.
    """

    priority_type: Annotated[str, OneOf("priority/basic", "priority/multifactor")] = BASIC
    priority_weight_age: NonNegativeInt = 0
    priority_weight_fairshare: NonNegativeInt = 0
    priority_weight_job_size: NonNegativeInt = 0
    priority_weight_partition: NonNegativeInt = 0
    priority_weight_qos: NonNegativeInt = 0
    priority_favor_small: bool = False
    priority_max_age: PositiveInt = 7 * 24 * 60
    priority_calc_period: PositiveInt = 5
    priority_decay_half_life: NonNegativeInt = 7 * 24 * 60
    priority_flags: Annotated[str, OneOf("FAIR_TREE", "NO_FAIR_TREE")] = "FAIR_TREE"
    fair_share_dampening_factor: PositiveInt = 1
    tres_billing_weights: Mapping[Name, NonNegativeFloat] = field(default_factory=dict)
    priority_tier: Mapping[Name, PositiveInt] = field(default_factory=dict)
    priority_job_factor: Mapping[Name, NonNegativeInt] = field(default_factory=dict)

    @property
    def has_factors(self) -> bool:
        """Return whether factors other than the job size count."""
        weights = (
            self.priority_weight_age,
            self.priority_weight_fairshare,
            self.priority_weight_partition,
            self.priority_weight_qos,
        )
        return self.priority_type == MULTIFACTOR and any(weights)

    @property
    def counts_usage(self) -> bool:
        """Return whether the usage of users counts."""
        return self.priority_type == MULTIFACTOR and self.priority_weight_fairshare > 0
