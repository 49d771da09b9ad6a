"""Figures of `polluxsim plot` that need profiles rather than runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.folder import ProfileFolder
from polluxsim.errors import InvalidInputError, allowed_among
from polluxsim.look.agent_model import agent_model
from polluxsim.look.fitted_speed import fitted_speed
from polluxsim.look.plot.batch_sizes import best_batch_sizes, goodputs, training_curves
from polluxsim.look.plot.throughput import throughput

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from polluxsim.look.plot.style import Drawing
    from polluxsim.models.profile import Profile


def _throughput(options: Namespace) -> Drawing:
    """Draw profiles against cards fitted to them, or against the agents' model fitted to them."""
    profiles = _profiles(options.profiles)
    cards = None if options.cards is None else _profiles(options.cards)
    known = [name for name in profiles if cards is None or name in cards]
    chosen = [_known(name, known) for name in options.application or known]
    fitted = {name: agent_model(profiles[name]) if cards is None else cards[name] for name in chosen}
    points = "card" if isinstance(profiles[chosen[0]], CardProfile) else "measured"
    names = (points, "throughput model fitted to it" if cards is None else "card fitted to it")
    return throughput([fitted_speed(profiles[name], fitted[name], name) for name in chosen], names, options.width)


def _of_one(figure: Callable[[Profile, float], Drawing]) -> Callable[[Namespace], Drawing]:
    """Return what draws a figure of one application."""

    def drawn(options: Namespace) -> Drawing:
        profiles = _profiles(options.profiles)
        return figure(profiles[_known(options.application, list(profiles))], options.width)

    return drawn


def _known(name: str, names: list[str]) -> str:
    if name not in names:
        raise InvalidInputError(f"there is no application {name!r}, {allowed_among(name, names)}")
    return name


def _profiles(folder: Path | None) -> Mapping[str, Profile]:
    return ProfileFolder(None if folder is None else str(folder)).load()


DRAW: Mapping[str, Callable[[Namespace], Drawing]] = {
    "throughput": _throughput,
    "batch-size": _of_one(best_batch_sizes),
    "goodput": _of_one(goodputs),
    "training": _of_one(training_curves),
}
