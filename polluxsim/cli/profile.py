"""Commands that write profile cards: `profile fit` and `profile card`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.cli.options import add_option, add_output, path
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, did_you_mean

if TYPE_CHECKING:
    from polluxsim.applications.card import Card
    from polluxsim.applications.transformer import Speed, Transformer
    from polluxsim.hardware.gpu_types import GpuType


def add_profile_fit(parser: ArgumentParser) -> None:
    parser.description = "Fit a profile card to the measurements of each application, and print the errors of the fit."
    parser.epilog = "Example: polluxsim profile fit measured/ -o cards/ --figure fit.png"
    parser.add_argument("measured", type=path, metavar="MEASURED", help="folder of measured profiles")
    add_output(parser, "folder for the cards", required=True)
    add_option(parser, "figure", note="draw the measured and the fitted throughput")
    parser.set_defaults(action=_fit)


def _fit(options: Namespace) -> None:
    """Fit and write profile cards, and print the errors of the fit."""
    from polluxsim.applications.card_files import fit_cards
    from polluxsim.applications.card_writing import write_cards
    from polluxsim.look.fitted_speed import error_table

    if options.figure is not None:
        from polluxsim.look.plot.style import check_ending

        check_ending(options.figure)
    cards = fit_cards(options.measured)
    for file in write_cards(cards, options.output):
        print(f"wrote {file}")
    print(error_table(cards))
    if options.figure is not None:
        _plot_fit(cards, options.measured, options.figure)
        print(f"wrote {options.figure}")


def _plot_fit(cards: Mapping[str, Card], measured: Path, figure: Path) -> None:
    """Draw the measured throughput and that of the cards."""
    from polluxsim.applications.card_profile import CardProfile
    from polluxsim.applications.osdi21 import read_profiles
    from polluxsim.look.fitted_speed import fitted_speed
    from polluxsim.look.plot.profiles import throughput
    from polluxsim.look.plot.style import save

    profiles = read_profiles(measured)
    speeds = []
    for card in cards.values():
        measured_profile = profiles[card.application.name]
        speeds.append(fitted_speed(measured_profile, CardProfile(card), card.about.title))
    save(throughput(speeds), figure)


NUMBERS = (
    "params", "seq", "layers", "hidden", "vocab", "trainable", "tokens", "batch", "max-batch", "noise-scale", "loss",
    "utilisation", "network",
)  # fmt: skip
"""Options about the model, its training and the cluster."""

DEFAULT_BATCH = 2**19  # initial batch size, about half a million [tokens]
TOKENS_PER_PARAMETER = 20  # tokens of a training. Source: Hoffmann et al. 2022
BITS_PER_BYTE = 8  # the network is given in Gbit/s, and a speed has GB/s


def add_profile_card(parser: ArgumentParser) -> None:
    parser.description = (
        "Compute a profile card from the size of a model and the data sheet of a GPU. The card is an estimate; "
        "'polluxsim profile fit' makes cards from measurements."
    )
    parser.epilog = "Example: polluxsim profile card transformer -o my-gpt.yaml --gpu a100-40 --params 124e6 --seq 1024"
    parser.add_argument("kind", choices=("transformer",), help="kind of model")
    add_output(parser, "NAME.yaml, the file to write; NAME names the application", required=True)
    add_option(parser, "gpu", required=True)
    for name in NUMBERS:
        add_option(parser, name, required=name in ("params", "seq"))
    add_option(parser, "recompute")
    add_option(parser, "title")
    parser.set_defaults(action=_card)


def _card(options: Namespace) -> None:
    """Compute and write a profile card, and print on which GPU types the model runs."""
    from polluxsim.applications.card_writing import write_card
    from polluxsim.applications.transformer import Training, transformer_card

    if options.output.suffix != ".yaml":
        raise InvalidInputError(f"{options.output}: the name of a profile card must end in .yaml")
    values = {name: getattr(options, name.replace("-", "_")) for name in NUMBERS}
    model = _model(values, recompute=options.recompute)
    speeds = _speeds(options.gpu, values)
    # At least one example, also if it is longer than the tokens of a batch.
    batch = int(values["batch"] or max(DEFAULT_BATCH // model.seq, 1))
    max_batch = int(values["max-batch"] or 16 * batch)
    tokens = values["tokens"] or TOKENS_PER_PARAMETER * model.params
    name = options.output.stem
    training = Training(name, options.title or name, tokens, batch, max_batch, values["noise-scale"], values["loss"])
    card = transformer_card(model, training, speeds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    print(f"wrote {write_card(card, options.output)}")
    for gpu in speeds:
        num_examples = model.most_examples(gpu)
        if num_examples:
            print(f"{gpu.name}: {num_examples} examples fit in memory")
        else:
            print(f"{gpu.name}: does not fit in memory, left out")


def _model(given: Mapping[str, Any], *, recompute: bool) -> Transformer:
    """Return the model that the user described; sizes that are not given are estimated from the parameters."""
    from polluxsim.applications.transformer import Transformer, depth_and_width

    layers, hidden = depth_and_width(given["params"])
    model = Transformer(given["params"], int(given["seq"]), layers, hidden, recompute=recompute)
    given_sizes: dict[str, Any] = {}
    for name in ("layers", "hidden", "vocab"):
        if given[name] is not None:
            given_sizes[name] = int(given[name])
    return model._replace(**given_sizes, trainable=given["trainable"] or model.trainable)


def _speeds(names: Sequence[str], given: Mapping[str, Any]) -> dict[GpuType, Speed]:
    """Return the speed of each GPU type, with the utilisation and the network that the user gave.

    Raise InvalidConfigError for an unknown GPU type.
    """
    from polluxsim.applications.transformer import SPEEDS
    from polluxsim.hardware.gpu_types import GPU_TYPES

    speeds = {}
    for name in names:
        speed = SPEEDS.get(name)
        if speed is None:
            meant = did_you_mean(name, SPEEDS)
            raise InvalidConfigError(f"profile card: --gpu {name!r} is unknown; choose from {', '.join(SPEEDS)}{meant}")
        if given["utilisation"]:
            speed = speed._replace(utilisation=given["utilisation"])
        if given["network"] is not None:
            speed = speed._replace(network=given["network"] / BITS_PER_BYTE)
        speeds[GPU_TYPES[name]] = speed
    return speeds
