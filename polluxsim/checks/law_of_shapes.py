"""The law that jobs keep their nodes: each job gets its GPUs in the shape that its request asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import Law
from polluxsim.hardware.node_shapes import Shape, shape_in_words
from polluxsim.policies.contract.reasons import JobSeen, RoundSeen


class Shapes(Law):
    """A job to which the policy gives its requested GPUs gets them in its shape."""

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding for each job whose new GPUs are spread over nodes in another way than it requests."""
        for job in this_round.jobs:
            by_node = {node: gpus for node, gpus in this_round.by_node[job.job_id].items() if gpus}
            # The law is about new placements of whole jobs: a running job keeps what it has, and an elastic job with
            # another number of GPUs has no shape.
            if by_node == dict(job.placement) or sum(by_node.values()) != job.num_replicas:
                continue
            types = {this_round.types[node] for node in by_node}
            gpus = sorted(by_node.values(), reverse=True)
            if len(types) == 1 and not has_shape(gpus, job.shapes[types.pop()]):
                spread = " + ".join(map(str, gpus))
                yield Finding(
                    Fault.SHAPE,
                    f"job {job.job_id!r} gets {spread} GPUs of nodes at {this_round.time:g} s, needs {_needs(job)}",
                )


def has_shape(gpus: Sequence[int], shape: Shape) -> bool:
    """Return whether GPUs of different nodes, in falling order, have a shape.

    >>> has_shape([4, 4], Shape(8, (4, 4))), has_shape([5, 3], Shape(8, (4, 4))), has_shape([6, 2], Shape(8, (), 2))
    (True, False, True)
    """
    if shape.parts:
        return tuple(gpus) == shape.parts
    return all(number % shape.gpus_per_task == 0 for number in gpus)


def _needs(job: JobSeen) -> str:
    """Return the shapes of a job on the GPU types in words, each shape once."""
    return " or ".join(dict.fromkeys(map(shape_in_words, job.shapes.values())))
