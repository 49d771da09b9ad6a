"""What a policy is, as it says itself."""

from __future__ import annotations

from dataclasses import dataclass, fields

from polluxsim.errors import PolicyError, short


@dataclass(frozen=True)
class Traits:
    """What a policy is; one without `traits` is none of this.

    Attributes
    ----------
    adaptive
        Jobs choose their own batch sizes under it; else they keep what their users asked for.
    known_throughput
        Their agents start with the θ_sys of their application instead of exploring it.
    maximises_throughput
        Their agents take throughput for goodput.
    needs_profiles
        It can do nothing with a job that has no profile but a known duration.
    scales
        It says how many nodes there are, and is asked when no job is here, too.
    shares_gpus
        It puts several jobs on a GPU, and can do nothing where `engine.sharing` does not say which fit together.
    one_type_as
        Why it can do nothing on a cluster of several GPU types, in a clause; empty for one that can.
    """

    adaptive: bool = False
    known_throughput: bool = False
    maximises_throughput: bool = False
    needs_profiles: bool = False
    scales: bool = False
    shares_gpus: bool = False
    one_type_as: str = ""


def traits_of(policy: object) -> Traits:
    """Return what a policy is.

    Raises
    ------
    PolicyError
        If its traits are none, or it says what it is in another way.
    """
    traits = getattr(policy, "traits", Traits())
    name = type(policy).__name__
    if not isinstance(traits, Traits):
        raise PolicyError(f"policy {name}: traits are {short(traits)}, allowed is a polluxsim.policies.view.Traits")
    stray = [field.name for field in fields(Traits) if getattr(policy, field.name, False)]
    if stray and not hasattr(policy, "traits"):
        raise PolicyError(
            f"policy {name} has an attribute {stray[0]}, which says nothing by itself; write traits = "
            f"Traits({stray[0]}=True), of polluxsim.policies.view"
        )
    return traits
