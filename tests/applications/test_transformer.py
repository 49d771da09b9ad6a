"""Cards from first principles: near to published throughputs, as the documentation says, and true to their formulas."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

import polluxsim
from polluxsim.applications.card_files import read_card, read_cards
from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.transformer import (
    ERROR,
    SPEEDS,
    Training,
    Transformer,
    critical_batch,
    loss_after,
    transformer_card,
)
from polluxsim.cli.main import main
from polluxsim.common.shipped import shipped
from polluxsim.hardware.gpu_types import GPU_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "model.md"
CARDS = shipped("traces") / "transformers"


class Published(NamedTuple):
    """A throughput somebody measured [tokens/s of a GPU]; without GPUs, on so many that the states are split."""

    what: str
    model: Transformer
    gpu: str
    gpus_by_node: tuple[int, ...]
    atomic_batch_size: int
    passes: int
    tokens_per_second: float


def by_flops(model: Transformer, teraflops: float) -> float:
    """Return the tokens per second of a rate that counts operations as Narayanan et al., SC '21, equation 3, do."""
    layers, hidden, seq, vocab = model.layers, model.hidden, model.seq, model.vocab
    a_token = 96 * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))
    return teraflops * 1e12 / a_token


SC21 = Transformer(1.7e9, 2048, 24, 2304, 51200, recompute=True)
MEGATRON = Transformer(1.2e9, 1024, 40, 1536, 51200, recompute=True)
GPT2 = Transformer(124e6, 1024, 12, 768)
XL = Transformer(1.558e9, 1024, 48, 1600)
PUBLISHED = [
    Published("1.7B, Megatron-LM (SC '21, table 1)", SC21, "a100-80", (8,) * 4, 16, 1, by_flops(SC21, 137)),
    Published("1.2B, Megatron-LM (Shoeybi et al. 2019)", MEGATRON, "v100-32", (1,), 8, 1, by_flops(MEGATRON, 39)),
    # 600,000 steps of 491,520 tokens in about four days.
    Published("124M, nanoGPT (its README)", GPT2, "a100-40", (8,), 12, 5, 6e5 * 491520 / (4 * 86400) / 8),
    # 10 billion tokens in 90 minutes.
    Published("124M, llm.c (discussion 481)", GPT2, "a100-80", (8,), 64, 1, 1e10 / (90 * 60) / 8),
    # 32,000 steps of 2^20 tokens in 24 hours; with 16 examples, where 15 fit as we count.
    Published("1.6B, llm.c (discussion 677)", XL, "h100", (8,), 15, 8, 32e3 * 2**20 / 86400 / 8),
    # A trillion tokens in 82,432 and 135,168 GPU hours.
    Published(
        "6.7B, LLaMA (table 15)", Transformer(6.7e9, 2048, 32, 4096, 32000), "a100-80", (), 1, 1, 1e12 / (82432 * 3600)
    ),
    Published(
        "13B, LLaMA (table 15)", Transformer(13e9, 2048, 40, 5120, 32000), "a100-80", (), 1, 1, 1e12 / (135168 * 3600)
    ),
]  # fmt: skip


def computed(row: Published) -> float:
    """Return what the card says of the same [tokens/s of a GPU]."""
    gpu, speed = GPU_TYPES[row.gpu], SPEEDS[row.gpu]
    if not row.gpus_by_node:
        return row.model.seq / row.model.pass_times(gpu, speed)[1]
    card = transformer_card(row.model, Training("x", "x", 1e9, 512, 8192), {gpu: speed})
    step = CardProfile(card).step_time(row.gpus_by_node, row.atomic_batch_size)
    return row.passes * row.atomic_batch_size * row.model.seq / step.optimiser_step(row.passes - 1)


def test_the_errors_are_those_that_the_page_says():
    ratios = [computed(row) / row.tokens_per_second for row in PUBLISHED]
    for row, ratio in zip(PUBLISHED, ratios, strict=True):
        rates = f"{row.tokens_per_second:,.0f} | {computed(row):,.0f}"
        line = f"| {row.what} | {row.gpu} | {rates} | {'−' if ratio < 1 else '+'}{100 * abs(ratio - 1):.0f} % |"
        assert line in PAGE.read_text(encoding="utf-8"), line
    assert math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios)) == pytest.approx(ERROR, abs=0.005)


def test_memory_holds_what_published_runs_held():
    for row in PUBLISHED:
        if row.gpus_by_node:
            assert row.model.most_examples(GPU_TYPES[row.gpu]) >= row.atomic_batch_size
    assert Transformer(6.7e9, 2048, 32, 4096).most_examples(GPU_TYPES["a100-80"]) == 0  # 16 bytes each are 107 GB


@pytest.mark.parametrize("loss", [1.5, 2.0, 3.0, 5.0])
def test_the_noise_grows_as_the_loss_falls(loss):
    assert critical_batch(loss) > critical_batch(loss + 0.1)
    assert critical_batch(loss) * loss ** (1 / 0.21) == pytest.approx(2.1e8)


@pytest.mark.parametrize("params", [1e8, 1e10])
@pytest.mark.parametrize("tokens", [1e7, 1e9, 1e12])
def test_the_loss_is_that_of_the_steps_at_its_own_critical_batch(params, tokens):
    loss = loss_after(params, tokens, 2**19)
    steps = tokens / (2**19 + critical_batch(loss))
    assert loss == pytest.approx((6.5e13 / params) ** 0.077 + (2.1e3 / steps) ** 0.76)
    assert loss_after(params, 2 * tokens, 2**19) < loss
    assert loss_after(2 * params, tokens, 2**19) < loss


def test_synchronising_takes_what_a_ring_takes():
    gpu, speed = GPU_TYPES["a100-40"], SPEEDS["a100-40"]
    card = transformer_card(GPT2, Training("x", "x", 1e9, 512, 8192), {gpu: speed})
    for nodes, gpus, bandwidth in ((1, 2, 300), (1, 8, 300), (2, 16, 50), (16, 128, 50)):
        ring = 2 * (gpus - 1) / gpus * 2 * 124e6 / (0.8 * bandwidth * 1e9)
        assert card.sync(nodes, gpus) == pytest.approx(ring, rel=1e-3)


ARGUMENTS = ["--params", "1.3e9", "--seq", "2048", "--gpu", "a100-80,v100-32"]


def test_the_command_writes_a_card_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "cards" / "gpt.yaml"
    path.parent.mkdir()
    assert main(["profile", "card", "transformer", "-o", str(path), *ARGUMENTS, "--tokens", "1e9"]) == 0
    assert "a100-80: " in capsys.readouterr().out
    card = read_card(path)
    assert (card.application.name, card.gpu_type, list(card.types)) == ("gpt", "a100-80", ["v100-32"])
    assert card.work == pytest.approx(1e9 / 2**19, rel=1e-4)
    (tmp_path / "jobs.csv").write_text("name,time,application,num_replicas,batch_size\na,0,gpt,8,512\n")
    groups = [[1, 8, "a100-80"], [2, 8, "v100-32"]]
    result = polluxsim.simulate(
        tmp_path / "jobs.csv", profiles=tmp_path / "cards", cluster=polluxsim.cluster("mixed", groups=groups)
    )
    assert list(result.jobs.status) == ["completed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "a100"], "--gpu 'a100' is unknown; choose from v100-32"),
        (["--params", "nan"], "--params is nan"),
        (["--params", "-1"], "--params is -1"),
        (["--layers", "2.5"], "--layers is 2.5, must be a whole number"),
        (["--trainable", "2"], "--trainable is 2, must be a number above 0 and at most 1"),
        (["--params", "70e9"], "does not fit in the memory of a100-80 of 80 GB, v100-32 of 32 GB"),
        (["--batch", "64", "--max-batch", "32"], "must be rising limits"),
    ],
)  # fmt: skip
def test_bad_options_are_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments, message):
    path = tmp_path / "x.yaml"
    assert main(["profile", "card", "transformer", "-o", str(path), *ARGUMENTS, *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not path.exists()


def test_the_ready_cards_are_as_the_page_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    readme = (CARDS / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = readme.split("```sh\n")[1].split("```")[0].replace("\\\n", "").splitlines()
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert sorted(tmp_path.iterdir()) != []
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (CARDS / path.name).read_bytes()
    assert len(read_cards(CARDS)) == len(commands) == 4
