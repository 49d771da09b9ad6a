"""`polluxsim fit`: profile cards from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from polluxsim.applications.card import Card


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Fit a profile card to the measurements of each application, and print the errors of the fit."
    parser.epilog = "Example: polluxsim fit measured/ cards/ --plot fit.png"
    parser.add_argument("measured", type=Path, metavar="MEASURED", help="folder of measured profiles")
    parser.add_argument("output", type=Path, metavar="OUT", help="folder for the cards")
    parser.add_argument("--plot", type=Path, metavar="FILE",
                        help="file for a plot of the measured and the fitted throughput")  # fmt: skip
    parser.set_defaults(action=_fit)


def _fit(options: Namespace) -> None:
    from polluxsim.applications.card_files import fit_cards, write_cards
    from polluxsim.look.fitted_speed import error_table

    cards = fit_cards(options.measured)
    for path in write_cards(cards, options.output):
        print(f"wrote {path}")
    print(error_table(cards))
    if options.plot is not None:
        _plot(cards, options.measured, options.plot)
        print(f"wrote {options.plot}")


def _plot(cards: Mapping[str, Card], measured: Path, path: Path) -> None:
    from polluxsim.applications.card_profile import CardProfile
    from polluxsim.applications.osdi21 import read_profiles
    from polluxsim.look.fitted_speed import fitted_speed
    from polluxsim.look.plot.style import save
    from polluxsim.look.plot.throughput import throughput

    profiles = read_profiles(measured)
    speeds = [
        fitted_speed(profiles[card.application.name], CardProfile(card), card.about.title) for card in cards.values()
    ]
    save(throughput(speeds), path)
