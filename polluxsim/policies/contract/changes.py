"""Kinds of events that may outdate a decision."""

from __future__ import annotations

from enum import Flag, auto


class Change(Flag):
    """Kinds of events between rounds."""

    ARRIVAL = auto()  # a job was submitted
    EPOCH = auto()  # a job began an epoch
    COMPLETION = auto()  # a job ended
    LEARNING = auto()  # an agent learnt something
    NODES = auto()  # a node came up or went down, or a failure was announced
    EVICTION = auto()  # a job lost its GPUs by a failure
    JOBS_OR_NODES = ARRIVAL | COMPLETION | NODES
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES | EVICTION
