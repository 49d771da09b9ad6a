"""Commands that write profile cards: `fit` and `card`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.common.errors import InvalidConfigError, did_you_mean

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from polluxsim.applications.card import Card
    from polluxsim.applications.transformer import Speed, Transformer
    from polluxsim.hardware.gpu_types import GpuType


def add_fit(parser: ArgumentParser) -> None:
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
        _plot_fit(cards, options.measured, options.plot)
        print(f"wrote {options.plot}")


def _plot_fit(cards: Mapping[str, Card], measured: Path, path: Path) -> None:
    from polluxsim.applications.card_profile import CardProfile
    from polluxsim.applications.osdi21 import read_profiles
    from polluxsim.look.fitted_speed import fitted_speed
    from polluxsim.look.plot.profiles import throughput
    from polluxsim.look.plot.style import save

    profiles = read_profiles(measured)
    speeds = [
        fitted_speed(profiles[card.application.name], CardProfile(card), card.about.title) for card in cards.values()
    ]
    save(throughput(speeds), path)


NUMBERS = {
    "params": ("N", "number of parameters"),
    "seq": ("N", "length of an example [tokens]"),
    "layers": ("N", "number of layers (default: estimated from the parameters)"),
    "hidden": ("N", "width of a layer (default: estimated from the parameters)"),
    "vocab": ("N", "size of the vocabulary; 0 for a classifier (default: 50257)"),
    "trainable": ("SHARE", "share of trained parameters, below 1 with adapters (default: 1)"),
    "tokens": ("N", "training set [tokens] (default: 20 for each parameter, Hoffmann et al. 2022)"),
    "batch": ("N", "initial batch size [examples] (default: half a million tokens)"),
    "max-batch": ("N", "largest batch size [examples] (default: 16 times the initial batch size)"),
    "noise-scale": ("N", "gradient noise scale [examples] (default: from the loss, Kaplan et al. 2020)"),
    "loss": ("NATS", "loss of a trained model (default: from the tokens)"),
    "utilisation": ("SHARE", "utilisation of the GPU's peak in a pass (default: of the GPU type)"),
    "network": ("GBIT", "bandwidth of a node in one direction [Gbit/s] (default: of the GPU type)"),
}
WHOLE = {"seq", "layers", "hidden", "vocab", "batch", "max-batch"}
SHARES = {"trainable", "utilisation"}
NEEDED = {"params", "seq"}


def add_card(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Compute a profile card from the size of a model and the data sheet of a GPU. The card is an estimate; "
        "'polluxsim fit' makes cards from measurements."
    )
    parser.epilog = "Example: polluxsim card transformer my-gpt.yaml --gpu a100-40 --params 124e6 --seq 1024"
    parser.add_argument("kind", choices=("transformer",), help="kind of model")
    parser.add_argument("output", type=Path, metavar="NAME.yaml", help="file to write; NAME names the application")
    parser.add_argument("--gpu", required=True, metavar="TYPE,...",
                        help="GPU types; the card is for the first type whose memory suffices")  # fmt: skip
    for name, (metavar, what) in NUMBERS.items():
        parser.add_argument(f"--{name}", type=float, metavar=metavar, help=what, required=name in NEEDED)
    parser.add_argument("--recompute", action="store_true",
                        help="the backward pass computes the activations again, which saves memory")  # fmt: skip
    parser.add_argument("--title", help="title of the application (default: the name)")
    parser.set_defaults(action=_card)


def _card(options: Namespace) -> None:
    from polluxsim.applications.card_files import write_card
    from polluxsim.applications.transformer import Training, transformer_card

    given = {name: _number(name, getattr(options, name.replace("-", "_"))) for name in NUMBERS}
    model, speeds = _model(given, recompute=options.recompute), _speeds(options.gpu, given)
    batch = int(given["batch"] or max(2**19 // model.seq, 1))
    most = int(given["max-batch"] or 16 * batch)
    tokens = given["tokens"] or 20 * model.params
    name = options.output.stem
    training = Training(name, options.title or name, tokens, batch, most, given["noise-scale"], given["loss"])
    card = transformer_card(model, training, speeds)
    print(f"wrote {write_card(card, options.output)}")
    for gpu in speeds:
        most = model.most_examples(gpu)
        print(f"{gpu.name}: {f'{most} examples fit in memory' if most else 'does not fit in memory, left out'}")


def _number(name: str, value: float | None) -> float | None:
    """Return the value of an option, checked."""
    if value is None or (name == "vocab" and value == 0):
        return value
    most, least = (1.0 if name in SHARES else 1e15), (1.0 if name in WHOLE | NEEDED else 1e-9)
    if not least <= value <= most or (name in WHOLE and value % 1):
        kind = "a whole number" if name in WHOLE else "a number"
        raise InvalidConfigError(f"card: --{name} is {value:g}, must be {kind} from {least:g} to {most:g}")
    return value


def _model(given: Mapping[str, float | None], *, recompute: bool) -> Transformer:
    from polluxsim.applications.transformer import Transformer, depth_and_width

    params, vocab = given["params"] or 0.0, given["vocab"]
    layers, hidden = depth_and_width(params)
    return Transformer(
        params=params,
        seq=int(given["seq"] or 0),
        layers=int(given["layers"] or layers),
        hidden=int(given["hidden"] or hidden),
        vocab=50257 if vocab is None else int(vocab),
        trainable=given["trainable"] or 1.0,
        recompute=recompute,
    )


def _speeds(names: str, given: Mapping[str, float | None]) -> dict[GpuType, Speed]:
    """Return the speed of every type by its name."""
    from polluxsim.applications.transformer import SPEEDS
    from polluxsim.hardware.gpu_types import GPU_TYPES

    speeds = {}
    for name in names.split(","):
        if (known := SPEEDS.get(name)) is None:
            meant = did_you_mean(name, SPEEDS)
            raise InvalidConfigError(f"card: --gpu {name!r} is unknown; choose from {', '.join(SPEEDS)}{meant}")
        network = given["network"]
        speeds[GPU_TYPES[name]] = known._replace(
            utilisation=given["utilisation"] or known.utilisation,
            network=known.network if network is None else network / 8,
        )
    return speeds
