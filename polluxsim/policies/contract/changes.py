"""Kinds of events that may outdate a decision."""

from __future__ import annotations

from enum import Flag, auto


class Change(Flag):
    """Kinds of events since the last decision of a policy."""

    ARRIVAL = auto()  # a job was submitted
    EPOCH = auto()  # a job began an epoch
    COMPLETION = auto()  # a job ended
    LEARNING = auto()  # an agent learnt something
    NODES = auto()  # a node came up or went down, or a failure was announced
    EVICTION = auto()  # a job lost its GPUs by a failure
    # The events that change which jobs and nodes there are. Many policies need to decide again only then.
    JOBS_OR_NODES = ARRIVAL | COMPLETION | NODES
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES | EVICTION
