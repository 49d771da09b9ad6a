"""The CPUs and memory of nodes and jobs of the simulator, as Slurm counts them, and what jobs get of them.

A job of the simulator states CPUs and memory for each GPU (`--cpus-per-gpu`, `--mem-per-gpu`). Without them and without
`DefCpuPerGPU`, it gets the CPUs of a GPU of the poorest node, in place of one CPU for each task, which would slow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, floor

from polluxsim.common.instants import ROUNDING
from polluxsim.hardware.hosts import MIB, NOTHING, Host, least, shares_of
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.slurm.consumption import StatedConsumption
from polluxsim.policies.slurm.parameters import Parameters

CPUS_PER_GPU = 16  # of a node whose CPUs are not stated; only ties between nodes depend on it


class HostsOfView:
    """CPUs and memory of the nodes and jobs of a view."""

    def __init__(self, view: ClusterView, parameters: Parameters) -> None:
        self._view = view
        self._parameters = parameters
        self._share = NOTHING  # CPUs and memory of a GPU of the poorest node
        if view.hosts:
            with_gpus = [number for number, gpus in enumerate(view.gpus_per_node) if gpus]
            hosts = [view.hosts[number] for number in with_gpus]
            gpus = [view.gpus_per_node[number] for number in with_gpus]
            self._share = least(shares_of(hosts, gpus)) if hosts else NOTHING

    def cpus(self, node: int) -> int:
        """Return the CPUs of a node."""
        if not self._view.hosts:
            return CPUS_PER_GPU * self._view.gpus_per_node[node]
        return floor(self._view.hosts[node].cpus * (1 + ROUNDING))

    def memory(self, node: int) -> int:
        """Return the memory of a node of a cluster that states it [MB of slurm.conf, which are MiB]."""
        return floor(self._view.hosts[node].memory / MIB * (1 + ROUNDING))

    def stated(self, job: JobView, gpus: int) -> StatedConsumption:
        """Return the CPUs and memory that count as stated by a job, for some of its GPUs on a node.

        Without CPUs and `DefCpuPerGPU`, a job gets the CPUs that belong to as many GPUs of the poorest node. If the
        cluster does not state CPUs and memory, the job states nothing.
        """
        if not self._view.hosts:
            return StatedConsumption()
        asked = job.host or NOTHING
        memory = ceil(asked.memory * gpus / MIB * (1 - ROUNDING))
        if asked.cpus or self._parameters.def_cpu_per_gpu:
            return StatedConsumption(ceil(asked.cpus * gpus * (1 - ROUNDING)), memory)
        return StatedConsumption(floor(self._share.cpus * gpus * (1 + ROUNDING)), memory)

    def grants(self, placed: Iterable[tuple[JobView, Placement]]) -> dict[JobId, Host]:
        """Return the CPUs and memory for each GPU of jobs with GPUs; empty if the cluster does not state them.

        Jobs on a node that does not have what they ask for together get at most equal shares. This occurs for jobs that
        another policy placed before a fork.
        """
        if not self._view.hosts:
            return {}
        grants: dict[JobId, Host] = {}
        placements: dict[JobId, Placement] = {}
        for job, placement in placed:
            if job.job_id in self._view.sharing.held:
                continue
            placements[job.job_id] = placement
            grants[job.job_id] = self._of_gpu(job, placement)
        for name in self._on_crowded_nodes(placements, grants):
            grants[name] = grants[name].at_most(self._share)
        return grants

    def _of_gpu(self, job: JobView, placement: Placement) -> Host:
        """Return the CPUs and memory of a job for each of its GPUs."""
        asked = job.host or NOTHING
        parameters = self._parameters
        cpus = asked.cpus or parameters.def_cpu_per_gpu or self._share.cpus
        if not parameters.limits_memory:
            return Host(cpus, self._share.memory)
        whole_node = min(self._view.hosts[node].memory / gpus for node, gpus in placement)
        return Host(cpus, asked.memory or parameters.def_mem_per_gpu * MIB or whole_node)

    def _on_crowded_nodes(self, placements: Mapping[JobId, Placement], grants: Mapping[JobId, Host]) -> list[JobId]:
        """Return the jobs on nodes that do not have what their jobs get together."""
        used: dict[int, Host] = {}
        for name, placement in placements.items():
            for node, gpus in placement:
                used[node] = used.get(node, NOTHING).plus(grants[name].times(gpus))
        crowded = {node for node, host in used.items() if not self._view.hosts[node].holds(host)}
        return [name for name, placement in placements.items() if any(node in crowded for node, _ in placement)]
