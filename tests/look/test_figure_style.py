"""Colours that stay apart in greyscale and to the colour-blind, names by what differs, files alike twice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import yaml
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from polluxsim.cli.main import main
from polluxsim.common.policy_names import FIXED_COLOURS, MORE_POLICIES
from polluxsim.common.shipped import shipped
from polluxsim.look.colours import (
    DASHES,
    MORE_COLOURS,
    PAINTS,
    PALETTE,
    POLICY_COLOURS,
    application_colour,
    job_colour,
    looks,
    on_page,
)
from polluxsim.look.plot import kinds, style
from polluxsim.look.plot.distributions import jct_cdf
from polluxsim.look.plot.request import FIGURE_KINDS
from polluxsim.look.plot.style import MOST_LABELS, name_lines, new_figure, save
from polluxsim.records.folders import policy_name
from polluxsim.records.storage import Run, flat
from polluxsim.statistics.groups import RunGroup, grouped, is_named, labels_of

from .report.conftest import write_hand_made

# Simulation of full protanopia, deuteranopia and tritanopia on linear RGB: Machado et al. (2009), severity 1.
BLINDNESS = {
    "prot": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deut": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "trit": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "none": np.eye(3).tolist(),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def lab(colour: str, blindness: str = "none") -> np.ndarray:
    """Return CIE L*a*b* of an sRGB colour as somebody sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(BLINDNESS[blindness]) @ linear, 0, 1)
    x, y, z = (
        part ** (1 / 3) if part > (6 / 29) ** 3 else part / 3 * (29 / 6) ** 2 + 4 / 29 for part in TO_XYZ @ seen / WHITE
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_each_policy_of_gavel_has_the_name_of_its_rule() -> None:
    rounds, rules = "polluxsim.policies.typed.rounds.RoundsOfShares", "polluxsim.policies.typed.rules."
    rows = [{"policy._target_": rounds, "policy.shares._target_": rules + rule} for rule in ("MaxMin", "AlloX")]
    assert labels_of(rows) == ["MaxMin", "AlloX"]
    assert is_named(rows[0], (), "policy=max-min")
    assert not is_named(rows[1], (), "policy=max-min")


def test_the_name_of_a_shipped_policy_names_its_own_settings_only() -> None:
    """`proportional` and `proportional-shares` have the same title."""
    files = sorted((shipped("configs") / "policy").glob("*.yaml"))
    settings = {file.stem: flat({"policy": yaml.safe_load(file.read_text(encoding="utf-8"))}) for file in files}
    named = {name: [one for one in settings if is_named(settings[one], (), f"policy={name}")] for name in settings}
    assert named == {name: [name] for name in settings}


def test_every_policy_has_a_lightness_of_its_own() -> None:
    lightness = sorted(lab(POLICY_COLOURS[name])[0] for name in FIXED_COLOURS)
    assert min(np.diff(lightness)) >= 12
    assert lightness[-1] <= 75  # still seen on white


def test_a_light_page_has_the_colours_of_figures() -> None:
    for colour in POLICY_COLOURS.values():
        assert on_page(colour).startswith(f"light-dark({colour}, ")


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_colours_stay_apart_to_everybody(blindness: str) -> None:
    seen = [lab(colour, blindness) for colour in PALETTE]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 25


def least_difference(colours: Iterable[str], blindness: str) -> float:
    """Return the smallest ΔE (CIE76) of two colours as somebody sees them."""
    seen = [lab(colour, blindness) for colour in colours]
    return float(min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)))


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_applications_stay_apart_to_everybody(blindness: str) -> None:
    assert least_difference(map(application_colour, PAINTS), blindness) >= 20
    jobs = {name: [lab(job_colour(name, number), blindness) for number in range(30)] for name in PAINTS}
    for first, second in itertools.combinations(jobs.values(), 2):
        assert min(np.linalg.norm(a - b) for a in first for b in second) >= 10


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_policies_of_a_figure_stay_apart_to_everybody(blindness: str) -> None:
    policies = [*FIXED_COLOURS, *MORE_POLICIES]
    line_looks = looks(policies)
    assert [look.color for look in line_looks] == [*PALETTE, *MORE_COLOURS]
    assert least_difference([look.color for look in line_looks], blindness) >= 20
    on_dark_page = [on_page(name).rpartition(" ")[2].rstrip(")") for name in PALETTE]
    assert least_difference(on_dark_page, blindness) >= 15


def test_every_shipped_policy_has_a_colour_of_its_own_in_all_company() -> None:
    files = sorted((shipped("configs") / "policy").glob("*.yaml"))
    names = {policy_name(flat({"policy": yaml.safe_load(file.read_text(encoding="utf-8"))})) for file in files}
    assert names == set(POLICY_COLOURS)
    assert len(set(POLICY_COLOURS.values())) == len(names)
    for name in names:
        for company in ([name], ["Mine", name, "Pollux"], [*sorted(names - {name}), name]):
            assert looks(company)[company.index(name)].color == POLICY_COLOURS[name]
    for in_arena, name in (("EASY(overestimate=2)", "EASY"), ("LAS", "LeastAttainedService")):
        assert looks(["FIFO", in_arena])[1].color == POLICY_COLOURS[name]
    assert looks(["Pollux", "Mine"])[1].color != POLICY_COLOURS["Pollux"]


def test_no_colour_of_an_application_can_be_taken_for_that_of_a_policy() -> None:
    shown = [colour for name in PALETTE for colour in (name, *re.findall("#[0-9A-Fa-f]{6}", on_page(name)))]
    policies = [lab(colour) for colour in shown]
    for application in (*PAINTS, *(f"application-{number}" for number in range(40))):
        for colour in (application_colour(application), *(job_colour(application, number) for number in range(30))):
            assert min(np.linalg.norm(lab(colour) - policy) for policy in policies) >= 25, (application, colour)


def test_jobs_without_an_application_differ_from_their_neighbours() -> None:
    found = [lab(job_colour(None, number)) for number in range(200)]
    for number in range(len(found)):
        assert all(np.linalg.norm(found[number] - other) >= 10 for other in found[max(number - 8, 0) : number])


def test_lines_differ_in_dashes_as_well() -> None:
    seven = ["Pollux", "Tiresias", "Sia", "Gavel", "Themis", "Mine", "Yours"]
    for policies in (
        list(FIXED_COLOURS),
        seven,
        ["Pollux"] * 7,
        ["Pollux"] * 3 + ["Optimus", "Tiresias"],
        ["Mine", "Yours"],
    ):
        chosen = looks(policies)
        assert len({look.linestyle for look in chosen}) == len(policies)
        assert len({look.marker for look in chosen}) == len(policies)
    assert looks(["Tiresias", "Mine"])[0].color == looks(["Pollux", "Tiresias"])[1].color == POLICY_COLOURS["Tiresias"]
    assert len(looks(["Pollux"] * 20)) == 20
    assert len(set(DASHES)) == len(DASHES)


def settings(policy: str, **more: object) -> dict[str, object]:
    return {"policy._target_": f"x.{policy}", "seed": 0} | {key.replace("__", "."): more[key] for key in more}


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([settings("Pollux", policy__p=-1.0)], ["Pollux"]),
        ([settings("Pollux", policy__p=-1.0), settings("Srtf")], ["Pollux", "SRTF"]),
        ([settings("Pollux", policy__p=p) for p in (1.0, -10.0)], ["p = 1", "p = −10"]),
        (
            [settings("Pollux", policy__p=1.0), settings("Pollux", policy__p=-1.0), settings("Fifo")],
            ["Pollux, p = 1", "Pollux, p = −1", "FIFO"],
        ),
        ([settings("Pollux", seed=0), settings("Pollux", seed=1)], ["Pollux", "Pollux"]),
        ([settings("Fifo", engine__horizon=end) for end in (None, 60.0)], ["no horizon", "horizon = 60"]),
        ([settings("Pollux", policy__search=search) for search in ("annealing", "genetic")], ["annealing", "genetic"]),
        ([settings("Fifo", policy__backfill=value) for value in (True, False)], ["backfill", "not backfill"]),
        ([settings("Fifo", a__path="u/v"), settings("Fifo", b__path="w")], ["v", "w"]),
        (
            [settings("Fifo", workload___target_="a.Drawn", workload__hours=8, workload__tuned=True),
             settings("Fifo", workload___target_="a.File", workload__path="x.csv")],
            ["Drawn", "File"],
        ),
    ],
)  # fmt: skip
def test_labels_name_what_differs(rows: list[dict[str, object]], labels: list[str]) -> None:
    assert labels_of(rows) == labels


def test_seeds_are_pooled_and_twins_named_by_their_folders(runs: list[Run]) -> None:
    groups = grouped(runs)
    assert [(group.label, len(group.runs)) for group in groups] == [("Pollux", 2), ("Tiresias", 2)]
    assert [group.label for group in grouped(runs, each=True)] == [
        f"{policy}, seed = {seed}" for policy in ("Pollux", "Tiresias") for seed in (0, 1)
    ]
    twins = grouped([runs[0], Run("again", runs[0].info, runs[0].result)])
    assert [group.label for group in twins] == [f"Pollux ({runs[0].name})", "Pollux (again)"]


@pytest.mark.parametrize("ending", [".png", ".pdf", ".svg"])
def test_the_same_figure_has_the_same_bytes_whatever_the_users_settings(
    runs: list[Run], tmp_path: Path, ending: str
) -> None:
    before = dict(matplotlib.rcParams)
    save(jct_cdf(grouped(runs)), tmp_path / f"a{ending}")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other", "savefig.dpi": 30}):
        save(jct_cdf(grouped(runs)), tmp_path / f"b{ending}")
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
    assert dict(matplotlib.rcParams) == before
    assert {path.name for path in tmp_path.iterdir()} == {f"a{ending}", f"b{ending}"}


def test_few_lines_are_named_beside_them_and_many_in_a_legend(runs: list[Run]) -> None:
    few = jct_cdf(grouped(runs))
    assert not few.legends
    assert {text.get_text() for text in few.axes[0].texts} == {"Pollux", "Tiresias"}
    boxes = [text.get_window_extent() for text in few.axes[0].texts]
    assert not boxes[0].overlaps(boxes[1])
    for line in few.axes[0].get_lines():
        points = line.get_transform().transform(line.get_xydata())
        assert not any(box.contains(x, y) for box in boxes for x, y in points)
    many = jct_cdf([RunGroup(f"line {i}", "Pollux", (runs[0],)) for i in range(MOST_LABELS + 1)])
    assert [text.get_text() for text in many.legends[0].get_texts()] == [f"line {i}" for i in range(MOST_LABELS + 1)]


def test_help_and_functions_know_the_same_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(kinds._DRAW) == set(FIGURE_KINDS)
    with pytest.raises(SystemExit):
        main(["plot", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    for kind, words in FIGURE_KINDS.items():
        assert f"{kind} {words}" in printed


KIND_ARGUMENTS = {
    "jct-cdf": ["SWEEP"],
    "jct-by-application": ["SWEEP"],
    "usage": ["SWEEP", "--bin", "10min", "--each"],
    "job": ["RUN"],
    "sweep": ["SWEEP", "--x", "seed", "--metric", "makespan", "--by", "policy._target_"],
    "throughput": ["--application", "bert"],
    "scaling": ["SWEEP"],
    "batch-size": ["--application", "yolov3"],
    "goodput": ["--application", "bert"],
    "training": [],
    "fairness-cdf": ["SWEEP"],
    "queue": ["SWEEP"],
    "gpu-map": ["SWEEP", "--dark"],
    "failures": ["FAILING"],
    "slowdown-by-size": ["SWEEP"],
}


@pytest.mark.parametrize(("kind", "width"), [*((kind, "8.5") for kind in FIGURE_KINDS), ("usage", "17"), ("job", "17")])
def test_every_kind_draws_a_real_run_from_the_command_line(
    sweep_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    width: str,
) -> None:
    """And no text leaves the figure."""
    figures = []
    if kind == "failures":
        write_hand_made(tmp_path / "failing")
    monkeypatch.setattr(style, "save", lambda figure, path: (figures.append(figure), save(figure, path)))
    run = min(path.parent for path in sweep_folder.glob("*/run.json"))
    arguments = [
        {"SWEEP": str(sweep_folder), "RUN": str(run), "FAILING": str(tmp_path / "failing")}.get(word, word)
        for word in KIND_ARGUMENTS[kind]
    ]
    output = tmp_path / "new" / f"{kind}.png"
    status = main(["plot", kind, *arguments, "--width", width, "-o", str(output)])
    printed = capsys.readouterr()
    if kind == "fairness-cdf" and status:
        assert "no column 'finish_time_fairness'" in printed.err
        assert not output.parent.exists()
        return
    assert (status, printed.err) == (0, "")
    assert printed.out == f"wrote {output}\n"
    image = matplotlib.image.imread(output)
    assert image.shape[1] == pytest.approx(float(width) / 2.54 * 200, abs=1)
    if "--dark" in arguments:
        assert image[0, 0, :3].max() < 0.2
    else:
        assert 0.6 < image.mean() < 1.0  # neither blank nor black
    (figure,) = figures
    figure.draw_without_rendering()
    extent, page = figure.get_tightbbox(), figure.bbox_inches.padded(0.01)
    assert page.x0 <= extent.x0
    assert extent.x1 <= page.x1
    assert page.y0 <= extent.y0
    assert extent.y1 <= page.y1


BAD = [
    (["jct-cdf", "nowhere"], "nowhere: there is no such folder"),
    (["jct-cdf", "RUN", "-o", "x.gif"], "x.gif: the name of a figure must end in .pdf, .png, .svg"),
    (["jct-cdf", "RUN", "--width", "2"], "--width is 2, must be 5 to 60 cm"),
    (["jct-cdf", "RUN", "--width", "nan"], "--width is nan"),
    (["usage", "RUN", "--bin", "0min"], "--bin is 0min, must be a duration above 0"),
    (["job", "RUN", "--job", "nobody"], "there is no job 'nobody'"),
    (["job", "RUN", "--profiles", "nowhere"], "must be a folder with cards"),
    (["sweep", "RUN", "--x", "policy.q"], "the runs have no setting 'policy.q'"),
    (["sweep", "gone.parquet", "--x", "policy.p"], "gone.parquet: no such file"),
    (["sweep", "bad.parquet", "--x", "policy.p"], "bad.parquet: not a Parquet dataset"),
    (["throughput", "--application", "nothing"], "there is no application 'nothing', must be one of"),
    (["training", "nowhere"], "nowhere"),
    (["failures", "RUN"], "no node went down and no job failed; draw a run with outages or failures"),
    (["scaling", "gone.csv"], "gone.csv: no such file"),
    (["scaling", "bad.csv"], "bad.csv, line 1: missing column"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_gets_one_line_and_status_2(
    sweep_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.parquet").write_text("no")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    run = str(min(path.parent for path in sweep_folder.glob("*/run.json")))
    assert main(["plot", *(run if word == "RUN" else word for word in arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert {path.name for path in tmp_path.iterdir()} == {"bad.parquet", "bad.csv"}


@pytest.mark.parametrize("seed", range(6))
def test_no_name_hides_a_line(seed: int) -> None:
    """On random walks: where all names found room, nothing is under them; else there is a legend."""
    rng = np.random.default_rng(seed)
    figure = new_figure(8.5, 5.0)
    axes = figure.subplots()
    walks = rng.normal(size=(3, 60)).cumsum(axis=1)
    lines = {axes.plot(walk)[0]: f"line number {place}" for place, walk in enumerate(walks)}
    name_lines(axes, lines)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == (0 if figure.legends else 3)
    for line in lines:
        x, y = line.get_data()
        fine = np.linspace(0, 59, 6000)
        points = axes.transData.transform(np.column_stack([fine, np.interp(fine, x, y)]))
        assert not any(box.contains(*point) for box in boxes for point in points.tolist())


def test_a_long_legend_stands_above_the_panel(runs: list[Run]) -> None:
    figure = jct_cdf([RunGroup(f"a line with a name of some length, {i}", "Pollux", (runs[0],)) for i in range(12)])
    figure.draw_without_rendering()
    panel, names = figure.axes[0].get_window_extent(), figure.legends[0].get_window_extent()
    assert panel.height > 0.5 * panel.width
    assert names.y0 >= panel.y1


def test_a_long_name_has_several_lines_and_leaves_room_for_the_panel(runs: list[Run]) -> None:
    groups = [
        RunGroup(f"policy {number}, " + "lost nodes = 1 2 3 4 5 6 " * 4, "Pollux", (runs[0],)) for number in (1, 2)
    ]
    figure = jct_cdf(groups)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert figure.axes[0].get_position().width > 0.7


@pytest.mark.parametrize(
    ("ends", "numbers"), [((2, 9), "2 3 5 7"), ((0.2, 9), "0.2 0.5 1 2 5"), ((1, 1e4), "1 100 10000")]
)
def test_numbers_on_a_logarithmic_axis_are_few_and_plain(ends: tuple[float, float], numbers: str) -> None:
    figure = new_figure(8.5, 5)
    axes = figure.subplots()
    axes.plot(ends, ends)
    axes.set_xscale("log")
    axes.set_xlim(*ends)
    style.log_ticks(axes.xaxis)
    figure.draw_without_rendering()
    ticks = [(tick.get_loc(), tick.label1.get_text()) for tick in axes.xaxis.get_major_ticks()]
    shown = [text for place, text in ticks if ends[0] <= place <= ends[1]]
    assert set(numbers.split()) <= set(shown)
    assert not any(tick.label1.get_text() for tick in axes.xaxis.get_minor_ticks())


def test_a_name_with_dollars_is_no_formula(runs: list[Run]) -> None:
    groups = [RunGroup(name, name, (run,)) for name, run in zip(("$x^2$", "b"), runs, strict=False)]
    names = [text for text in jct_cdf(groups).findobj(Text) if text.get_text() == "$x^2$"]
    assert names
    assert not any(text.get_parse_math() for text in names)
