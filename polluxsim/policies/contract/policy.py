"""Everything that polluxsim asks of a policy: the base class of policies, and objects that only have `allocate`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import fields
from math import inf
from typing import Protocol, TypeGuard

import numpy as np

from polluxsim.common.errors import InvalidConfigError, PolicyError, short
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation
from polluxsim.policies.contract.decision import Decision, Traits
from polluxsim.policies.contract.job import JobView
from polluxsim.policies.contract.view import ClusterView
from polluxsim.workloads.job import Job

LIKENESS = 0.8
"""How much alike a name and a member must be, as `difflib` counts it, so that the name looks misspelt."""


class Allocates(Protocol):
    """An object with the one method that each policy needs. `as_policy` makes a `Policy` of it."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the placements until the next round, as `Policy.allocate`."""


class Asking(Protocol):
    """What quotas need to know of a job."""

    @property
    def queue(self) -> str | None:
        """Return the queue of the job."""

    @property
    def num_replicas(self) -> int:
        """Return the GPUs that the user requests."""


class QuotaRules(Protocol):
    """The quotas of a policy: the GPUs that each queue owns, and the GPUs that it can hold."""

    @property
    def takes_back(self) -> bool:
        """Return whether a queue within its quota preempts any job that holds GPUs beyond the quota of its queue.

        `polluxsim check` then tests that no job within its quota waits.
        """

    def quota_of(self, queue: str | None, gpu_type: str) -> int:
        """Return the quota of a queue on a GPU type [GPUs]."""

    def can_ever_hold(self, job: Asking, gpu_type: str, num_gpus: float = inf) -> bool:
        """Return whether the queue of a job can hold enough GPUs for it, if there are `num_gpus` GPUs of a type.

        A job gets no GPUs of a type on which its queue can never hold enough.
        """


class Policy(ABC):
    """A policy decides in scheduling rounds which job gets which GPUs.

    A policy needs `allocate`. All other members have defaults. A class may state a member as an attribute of the class,
    or as a property.

    A policy may have a state, and must not change other objects. Each run has its own policy. The constructor of a
    shipped policy raises `InvalidConfigError` if a parameter is invalid.

    >>> class FirstJob(Policy):
    ...     def allocate(self, view, rng):
    ...         return {job.job_id: ((0, 1),) for job in view.jobs[:1]}
    >>> FirstJob().traits.adaptive, FirstJob().label
    (False, 'FirstJob')
    """

    @abstractmethod
    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the placements until the next round. A job that is left out gets no GPUs.

        A `Decision` is an allocation with its quality and its validity.

        Default: none, each policy states it.
        Asked by: the engine, in each round in which the last decision is no longer valid.
        """

    @property
    def traits(self) -> Traits:
        """Return the properties of the policy that change how it is run and checked.

        Default: no traits.
        Asked by: the engine, before the run; `polluxsim check`.
        """
        return Traits()

    @property
    def label(self) -> str:
        """Return the name of the policy in messages.

        Default: the name of the class.
        Asked by: the engine, forks and `polluxsim check`.
        """
        return type(self).__name__

    @property
    def quota_rules(self) -> QuotaRules | None:
        """Return the quotas that limit the GPUs of queues.

        Default: None, for no quotas.
        Asked by: `PerType`, which sends no job to a type on which its queue can never hold enough GPUs; `polluxsim
        check`, for its laws of idle GPUs and of quotas.
        """
        return None

    @property
    def slow_kernels(self) -> Sequence[str]:
        """Return the modules with compiled functions that the policy needs and that take long to compile.

        Default: none.
        Asked by: the first run, which compiles the modules at once in processes of their own.
        """
        return ()

    @property
    def scales_with_time(self) -> bool:
        """Return whether the run has the same course on a clock that is faster or slower.

        It has if all times that the policy uses come from the view, or from parameters that the check knows.

        Default: true for the policies of polluxsim, and false for others.
        Asked by: `polluxsim check`, for its law of scaled times.
        """
        return type(self).__module__.partition(".")[0] == "polluxsim"

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> Iterable[str]:
        """Return a sentence for each setting that has no effect for these jobs on this cluster.

        Raise `InvalidConfigError` if a setting names a queue, user or GPU type that does not exist. The functions of
        `polluxsim.policies.contract.settings` help to write the method.

        Default: no sentences.
        Asked by: each run and fork, before it starts.
        """
        return ()

    def on_type(self, gpu_type: str, types: Collection[str]) -> Policy:
        """Return the policy for one GPU type of a cluster with several `types`.

        Default: a copy of the policy.
        Asked by: `PerType`, once for each type.
        """
        return deepcopy(self)

    def stays_on_type(self, job: JobView) -> bool:
        """Return whether a waiting job stays on the GPU type to which `PerType` sent it.

        Default: no job stays, if it would complete earlier on another type.
        Asked by: `PerType`, for each waiting job that does not fit on its type.
        """
        return False


class PolicyAround(Policy):
    """A policy that asks another one, `wrapped`, and has its members where it states nothing else.

    `label` and `on_type` are those of `Policy`: the name of its own class, and a copy of the whole.
    """

    @property
    @abstractmethod
    def wrapped(self) -> Policy:
        """Return the other policy."""

    @property
    def traits(self) -> Traits:
        """Return the traits of the other policy."""
        return traits_of(self.wrapped)

    @property
    def quota_rules(self) -> QuotaRules | None:
        """Return the quotas of the other policy."""
        return self.wrapped.quota_rules

    @property
    def slow_kernels(self) -> Sequence[str]:
        """Return the modules that the other policy needs."""
        return self.wrapped.slow_kernels

    @property
    def scales_with_time(self) -> bool:
        """Return whether the run of the other policy has the same course on each clock."""
        return self.wrapped.scales_with_time

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> Iterable[str]:
        """Return sentences about the settings of the other policy."""
        return self.wrapped.without_effect(jobs, cluster)

    def stays_on_type(self, job: JobView) -> bool:
        """Return whether a waiting job stays on its GPU type under the other policy."""
        return self.wrapped.stays_on_type(job)


class _Adapted(Policy):
    """A policy made of an object without the base class. The object may have each other member of `Policy`, too.

    A member that the object lacks has the default of `Policy`.
    """

    def __init__(self, plain: Allocates) -> None:
        self.plain = plain

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        return self.plain.allocate(view, rng)

    @property
    def traits(self) -> Traits:
        traits: Traits = getattr(self.plain, "traits", super().traits)
        return traits

    @property
    def label(self) -> str:
        label = getattr(self.plain, "label", None)
        # An object from elsewhere may use the name for something else than a text.
        if isinstance(label, str):
            return label
        return type(self.plain).__name__

    @property
    def quota_rules(self) -> QuotaRules | None:
        rules: QuotaRules | None = getattr(self.plain, "quota_rules", None)
        return rules

    @property
    def slow_kernels(self) -> Sequence[str]:
        modules: Sequence[str] = getattr(self.plain, "slow_kernels", ())
        return modules

    @property
    def scales_with_time(self) -> bool:
        return bool(getattr(self.plain, "scales_with_time", False))

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> Iterable[str]:
        method = getattr(self.plain, "without_effect", None)
        if method is None:
            return super().without_effect(jobs, cluster)
        return list(method(jobs, cluster))

    def on_type(self, gpu_type: str, types: Collection[str]) -> Policy:
        method = getattr(self.plain, "on_type", None)
        if method is None:
            return super().on_type(gpu_type, types)
        return as_policy(method(gpu_type, types))

    def stays_on_type(self, job: JobView) -> bool:
        method = getattr(self.plain, "stays_on_type", None)
        if method is None:
            return super().stays_on_type(job)
        return bool(method(job))


def as_policy(policy: Allocates) -> Policy:
    """Return an object with a method `allocate` as a `Policy`; a `Policy` is returned unchanged."""
    return policy if isinstance(policy, Policy) else _Adapted(policy)


def is_policy(value: object) -> TypeGuard[Allocates]:
    """Return whether a value, like the setting of a policy inside another one, has a method `allocate`."""
    return callable(getattr(value, "allocate", None))


def inner_policy(setting: str, value: object) -> Policy:
    """Return the policy that a setting of another policy holds. Raise `InvalidConfigError` if it is none."""
    if not is_policy(value):
        raise InvalidConfigError(f"{setting} is {value!r}, must be a policy: choose one with policy@{setting}=NAME")
    return as_policy(value)


def traits_of(policy: Allocates) -> Traits:
    """Return the traits of a policy.

    Raises
    ------
    PolicyError
        If the attribute `traits` is no `Traits`, or if the policy has an attribute that is named like a trait which
        the traits lack, and that is true or not empty.
    """
    adapted = as_policy(policy)
    traits = adapted.traits
    name = adapted.label
    if not isinstance(traits, Traits):
        raise PolicyError(f"policy {name}: traits are {short(traits)}; they must be a polluxsim.Traits")
    missing_traits = [field.name for field in fields(Traits) if not getattr(traits, field.name)]
    stated = _as_written(adapted)
    # An attribute `adaptive = True` beside no such trait: the author probably meant the trait.
    stray = [trait for trait in missing_traits if getattr(stated, trait, False)]
    if stray:
        raise PolicyError(
            f"policy {name} has an attribute {stray[0]}, which has no effect; write traits = "
            f"polluxsim.Traits({stray[0]}=True)"
        )
    return traits


def _as_written(policy: Policy) -> object:
    """Return the object that the author of a policy wrote."""
    return policy.plain if isinstance(policy, _Adapted) else policy


def misspelt_members(policy: Allocates) -> list[str]:
    """Return a sentence for each attribute of a policy, or of its quotas, that looks like a misspelt member.

    A policy without quotas also gets a sentence for each attribute that is named like a member of `QuotaRules`.
    Attributes that a class has from polluxsim are not looked at.
    """
    adapted = as_policy(policy)
    stated = _as_written(adapted)
    sentences = _misspelt(stated, Policy)
    rules = adapted.quota_rules
    if rules is None:
        for name in sorted(_own_names(stated) & _public_names(QuotaRules)):
            sentences.append(f"{adapted.label}.{name} has no effect; state it in an object, which quota_rules returns")
    elif rules is not stated:
        sentences += _misspelt(rules, QuotaRules)
    return sentences


def _misspelt(stated: object, kind: type) -> list[str]:
    """Return a sentence for each attribute of an object that looks like a misspelt member of a class."""
    from difflib import SequenceMatcher  # noqa: PLC0415  (slow to load, and only needed here)

    own_names = _own_names(stated)
    # A member that the object states itself is spelt well there, so that another name was not meant for it.
    members = sorted(_public_names(kind) - own_names)
    sentences: list[str] = []
    for name in sorted(own_names - _public_names(kind)):
        for member in members:
            has_same_words = sorted(name.split("_")) == sorted(member.split("_"))
            # Names of one word, like `label`, are like many names that an author chooses for something else.
            is_alike = "_" in member and SequenceMatcher(None, name, member).ratio() >= LIKENESS
            if has_same_words or is_alike:
                sentences.append(f"{type(stated).__name__}.{name} has no effect; did you mean {member}?")
                break
    return sentences


def _public_names(kind: type) -> set[str]:
    """Return the names of the public attributes that a class states."""
    return {name for name in vars(kind) if not name.startswith("_")}


def _own_names(stated: object) -> set[str]:
    """Return the names of the public attributes of an object and of its classes, without classes of polluxsim."""
    names = {name for name in getattr(stated, "__dict__", {}) if not name.startswith("_")}
    for kind in type(stated).__mro__:
        if kind.__module__.partition(".")[0] not in {"polluxsim", "builtins", "abc"}:
            names |= _public_names(kind)
    return names
