"""Shortest remaining service first: SRTF that counts GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.policies.orders import gangs_by
from polluxsim.policies.srtf import remaining_time

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView


@dataclass(frozen=True)
class Srsf:
    """Run the jobs with the least true remaining time × GPUs, on the GPUs and batch size their users asked for.

    Source: Gu et al., "Tiresias" (NSDI '19), where it is the ideal that least attained service comes close to.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by remaining service."""
        node_size = view.node_size

        def service(job: JobView) -> float:
            return remaining_time(job, node_size) * job.num_replicas

        return gangs_by(view, service, lambda job: {"remaining_service": service(job)})
