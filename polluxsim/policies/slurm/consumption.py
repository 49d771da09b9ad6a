"""The CPUs and memory of a job on a node, as `SelectTypeParameters` and the defaults of a partition state them.

Under `CR_Core`, CPUs limit jobs; under `CR_Core_Memory`, CPUs and memory do. A job that does not state its CPUs gets
`DefCpuPerGPU` for each GPU, and without it one for each task. A job that does not state its memory gets `DefMemPerGPU`
for each GPU, and without it all memory of its nodes. (Source: slurm.conf(5); specification, "Which nodes". Measured
with both defaults on slurmctld 22.05.)
"""

from __future__ import annotations

from typing import NamedTuple

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.values import ALL_MEMORY


class StatedConsumption(NamedTuple):
    """What a job states about each of its nodes. 0 means that it states nothing."""

    cpus: int = 0
    memory: int = 0  # [MB]


NOTHING = StatedConsumption()


class Needs(NamedTuple):
    """The CPUs and the memory [MB] that a job needs on a node."""

    cpus: int
    memory: int  # ALL_MEMORY for all memory of the node


def needs(gpus: int, num_tasks: int, stated: StatedConsumption, parameters: Parameters) -> Needs:
    """Return what a job needs on a node.

    >>> defaults = Parameters(def_cpu_per_gpu=8, def_mem_per_gpu=32000, select_type_parameters="CR_Core_Memory")
    >>> needs(2, 1, NOTHING, defaults)
    Needs(cpus=16, memory=64000)
    >>> needs(2, 1, StatedConsumption(cpus=40, memory=100000), defaults)
    Needs(cpus=40, memory=100000)
    >>> needs(2, 1, NOTHING, Parameters())
    Needs(cpus=1, memory=0)

    Parameters
    ----------
    gpus
        GPUs of the job on the node.
    num_tasks
        Tasks of the job on the node.
    """
    # Each task has a CPU at least, also where the default for GPUs gives fewer.
    cpus = stated.cpus or max(gpus * parameters.def_cpu_per_gpu, num_tasks)
    # Memory that does not limit jobs is not counted at all.
    memory = 0
    if parameters.limits_memory:
        memory = stated.memory or gpus * parameters.def_mem_per_gpu or ALL_MEMORY
    return Needs(cpus, memory)
