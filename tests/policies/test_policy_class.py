"""The base class of policies declares everything that polluxsim asks of a policy, and adapts plain objects."""

from __future__ import annotations

import inspect
import re
from copy import deepcopy
from pathlib import Path

import pytest

import polluxsim
from polluxsim.common.errors import PolicyError
from polluxsim.common.shipped import shipped
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy, QuotaRules, as_policy, inner_policy, misspelt_members, traits_of
from polluxsim.policies.contract.view import Traits
from polluxsim.policies.elastic.cluster_size import PendingGpus, Scaled
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.run.building import get_object
from polluxsim.run.composing import composed

PACKAGE = Path(polluxsim.__file__).parent
LOOKS = re.compile(r"\b(?:getattr|hasattr)\(\s*(?:self\._?)?(?:policy|inner|order|guest|plain|checked|wrapped)\s*,")
"""A look for an optional attribute of a policy."""

MEMBERS = [name for name in vars(Policy) if not name.startswith("_")]
CONFIGS = sorted(path.stem for path in (shipped("configs") / "policy").glob("*.yaml"))


class Plain:
    """A policy of a user's, without the base class, that says one thing about itself."""

    traits = Traits(slices_time=True)

    def allocate(self, view: object, rng: object) -> dict[str, tuple[tuple[int, int], ...]]:
        return {}


def test_only_the_module_of_the_base_class_looks_for_optional_attributes_of_a_policy() -> None:
    places = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if LOOKS.search(path.read_text("utf-8"))]
    assert places == [Path("policies/contract/policy.py")]


@pytest.mark.parametrize("name", MEMBERS)
def test_each_member_says_its_default_and_who_asks(name: str) -> None:
    text = inspect.getdoc(getattr(Policy, name)) or ""
    assert re.search(r"^Default: .+\.$", text, re.MULTILINE)
    assert re.search(r"^Asked by: ", text, re.MULTILINE)


@pytest.mark.parametrize("name", CONFIGS)
def test_each_shipped_policy_has_the_base_class(name: str) -> None:
    assert issubclass(get_object(composed({"policy": name}, {}, 0).config["policy"]["_target_"]), Policy)


def test_an_object_without_the_base_class_has_the_defaults_and_what_it_says_itself() -> None:
    policy = as_policy(Plain())
    assert traits_of(policy) == Traits(slices_time=True)
    assert traits_of(policy).slices_time
    assert policy.label == "Plain"
    assert policy.quota_rules is None
    assert not policy.slow_kernels
    assert not policy.scales_with_time
    assert not policy.without_effect([], Cluster.uniform(1, 1))
    assert as_policy(policy) is policy


def test_an_object_without_the_base_class_may_have_each_member() -> None:
    class Full(Plain):
        label = "mine with quotas"
        quota_rules = Quotas({"vision": 1})
        slow_kernels = ("mine.kernels",)
        scales_with_time = True

        def without_effect(self, jobs: object, cluster: object) -> list[str]:
            return ["mine.size has no effect"]

        def on_type(self, gpu_type: str, types: object) -> Fifo:
            return Fifo(backfill=gpu_type == "a100")

    policy = as_policy(Full())
    assert policy.label == "mine with quotas"
    assert policy.quota_rules is Full.quota_rules
    assert policy.slow_kernels == ("mine.kernels",)
    assert policy.scales_with_time
    assert policy.without_effect([], Cluster.uniform(1, 1)) == ["mine.size has no effect"]
    assert policy.on_type("a100", ("a100", "t4")) == Fifo(backfill=True)


def test_a_copy_of_an_adapted_object_is_independent() -> None:
    policy = inner_policy("policy.inner", Plain())
    assert deepcopy(policy).on_type("t4", ("t4",)).label == "Plain"


def test_a_policy_around_another_answers_like_it() -> None:
    policy = Scaled(Pollux(), PendingGpus())
    assert policy.slow_kernels == Pollux().slow_kernels != ()
    assert policy.label == "Scaled"
    assert policy.quota_rules is None
    assert Scaled(Quotas({"vision": 1}), PendingGpus()).quota_rules == Quotas({"vision": 1})


@pytest.mark.parametrize("base", [(), (Policy,)])
def test_wrong_traits_are_one_line(base: tuple[type, ...]) -> None:
    wrong = type("Wrong", (*base, Plain), {"traits": {"adaptive": True}, "allocate": Plain.allocate})
    with pytest.raises(PolicyError, match=r"policy Wrong: traits are .*; they must be a polluxsim.Traits"):
        traits_of(wrong())
    stray = type("Stray", (*base, Plain), {"traits": Traits(), "adaptive": True, "allocate": Plain.allocate})
    with pytest.raises(PolicyError, match="policy Stray has an attribute adaptive, which has no effect; write traits"):
        traits_of(stray())


def test_names_like_members_are_reported_and_others_are_not() -> None:
    class Rules:
        takes_back = True
        quotas_of = None

        def can_ever_hold(self, job: object, gpu_type: str, num_gpus: float = 0.0) -> bool:
            return True

    class Mine(Plain):
        quota_rules = Rules()
        on_types = label_of_jobs = effect_without = None

        def __init__(self) -> None:
            self.slow_kernel = ()
            self.allocated: list[str] = []
            self.interval = 60.0

    assert misspelt_members(Mine()) == [
        "Mine.effect_without has no effect; did you mean without_effect?",
        "Mine.on_types has no effect; did you mean on_type?",
        "Mine.slow_kernel has no effect; did you mean slow_kernels?",
        "Rules.quotas_of has no effect; did you mean quota_of?",
    ]


def test_quotas_that_a_policy_states_itself_are_reported() -> None:
    quotas = type("Mine", (Plain,), {"quota_of": lambda self, queue, gpu_type: 1})
    words = "Mine.quota_of has no effect; state it in an object, which quota_rules returns"
    assert misspelt_members(quotas()) == [words]


@pytest.mark.parametrize("name", CONFIGS)
def test_no_shipped_policy_misspells_a_member(name: str) -> None:
    kind = get_object(composed({"policy": name}, {}, 0).config["policy"]["_target_"])
    stated = {name for base in kind.__mro__ for name in vars(base) if not name.startswith("_")}
    names = stated - {*MEMBERS, *vars(QuotaRules)}
    assert not misspelt_members(type(kind.__name__, (Plain,), dict.fromkeys(names))())
