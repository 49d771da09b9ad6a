"""Draw the pictures of the documentation again: `python docs/pictures.py`, in a checkout with polluxsim installed.

`terminal` are those of the commands page: what a command prints, as an SVG without web fonts. `plots` are those of the
figures page, from nothing but what is shipped, as SVG that is light or dark as the page is. `report` is the page, as
headless Chromium shows it on a desktop and on a phone, light and dark. `live` and `timeline` are what their names say.
`notebooks` runs each notebook and keeps it as a page; the sweep and the tables it reads take half an hour. Commands run
in a folder, a temporary one or `--folder`, that those before them left. All come out the same again, but for
`scaling.svg`, which shows wall-clock times. `fit.png` needs the measured profiles, `conformance.svg` Muri's traces.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from PIL import Image
from results import light_and_dark
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.ui import WebDriverWait

from polluxsim.cli import live
from polluxsim.look.colours import application_colour
from polluxsim.run.composing import composed
from polluxsim.run.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.simulation import Simulation

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
EXECUTED = Path(__file__).parent / "executed"
FIXTURES = ROOT / "tests" / "logs" / "fixtures"
WIDTH = 104
NARROWEST = 84
FONTS = "Menlo, Consolas, DejaVu Sans Mono"

# Name of the picture, if there is to be one, the command line, and lines to keep of what it prints.
TERMINAL = [
    ("run", "run -o pollux", 40),
    ("", "run policy=tiresias -o tiresias", 0),
    ("", "run policy=optimus -o optimus", 0),
    ("table", "table pollux tiresias optimus", 40),
    ("compare", "compare pollux tiresias", 40),
    ("why", "why tiresias imagenet-12", 40),
    ("whatif", "whatif tiresias --at 3h policy=srtf --drop-node 3", 60),
    ("", "run policy=fifo workload=philly-like-rigid cluster.num_nodes=4 -o queued", 0),
    ("when", "when queued --at 3h", 40),
    ("size", "size workload=philly-like-rigid policy=fifo --target 'p90 wait < 1h'", 40),
    ("workload", "workload workload=philly-like workload.num_jobs=40 seed=1 -o workload.csv", 40),
    ("import", "log import slurm sacct.txt -o jobs.parquet --gpus 64 --skip-bad", 40),
    ("calibrate", "log calibrate jobs.parquet --gpus 16,32,64 --policies fifo,easy", 40),
    ("check", "check fifo --worlds 50", 40),
    ("arena", "arena --policies fifo,srtf,tiresias --scenarios rigid --seeds 6", 60),
    ("card", "profile card transformer -o gpt.yaml --params 1.3e9 --seq 2048 --gpu v100-32,a100-40,a100-80,h100", 40),
    ("reproduce", "paper reproduce fig1", 30),
    ("map", "workload workload=mapped workload.path=jobs.parquet -o mapped.csv", 40),
]


RUNS = (
    "run -m policy=pollux,tiresias,optimus -o runs",
    "run -m policy.p=1,-1,-10 seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=80 -o fairness",
    "run -m policy=tiresias seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=80 -o baseline",
    "run -m policy.search=annealing,genetic cluster.num_nodes=16,32,64 -o sizes",
    "run policy=tiresias cluster/failures=rsc-2 cluster.failures.rate=200 engine/checkpoints=interval -o failing",
)

PLOTS = {
    "jct-cdf": "runs",
    "jct-by-application": "runs",
    "usage": "runs",
    "queue": "runs",
    "gpu-map": "failing",
    "failures": "failing",
    "slowdown-by-size": "runs",
    "job": "runs/0-policy=pollux --job imagenet-12 --job yolov3-1",
    "fairness-cdf": "runs",
    "sweep": "fairness baseline --x policy.p",
    "throughput": "--application cifar10 --application bert --application imagenet --application ncf",
    "scaling": "sizes --width 13",
    "batch-size": "--width 13",
    "goodput": "--application cifar10",
    "training": "--width 8.5",
}

REPORTED = {
    "runs": "run -m policy=pollux,tiresias,optimus",
    "seeds": "run -m policy=tiresias,srtf,fifo seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=40",
    "failing": "run policy=tiresias cluster/failures=rsc-2 cluster.failures.rate=200 engine/checkpoints=interval",
    "elastic": "run policy=scaled cluster=elastic",
    "rigid": "run policy=fifo workload=philly-like-rigid",
    "shared": "run +experiment=shared-gpus",
    "forked": "whatif of-runs/1-policy=tiresias --at 3h policy=srtf",
}
"""Commands that make the runs that pages are shown of, without the folder `of-NAME`."""

CHOOSE = """
  const choose = (id, value) => {
    const element = document.getElementById(id);
    element.value = value;
    for (const name of ["change", "input"]) element.dispatchEvent(new Event(name));
  };
"""
PAGES = {
    "summary": ("runs", "", "main", ""),
    "timeline": ("runs", "", "#occupancy .card", ""),
    "versus": ("runs", "", "#versus", ""),
    "job": ("failing", "#job/0/imagenet-12", "main", ""),
    "seeds": ("seeds", "", "#summary", ""),
    "waits": ("failing", "", "#timeline", "choose('group-of', 'Jobs that wait'); choose('group-by', 'cause')"),
    "map": ("runs", "", "#timeline", "choose('map-of', 'jobs by submission'); choose('find', 'imagenet-12')"),
    "elastic": ("elastic", "", "#occupancy .card", ""),
}
"""Report, place and part of it, and what is done there first."""

ONLY_MAPS = """
  for (const figure of document.querySelectorAll("#timeline > figure"))
    if (!figure.querySelector("canvas")) figure.style.display = "none";
"""
WIDE_PAGES = {
    "fork": ("forked", "", "#summary", ""),
    "forked": ("forked", "", "#occupancy .card", ""),
    "down": ("failing", "", "#moment", "choose('time', 20400)"),
    "lost": ("failing", "", "#timeline", "choose('group-of', 'GPUs lost to failures')"),
    "stacked": ("runs", "", "#timeline", f"{ONLY_MAPS} choose('map-of', 'jobs by submission'); choose('beside', '1')"),
    "difference": ("runs", "", "#occupancy .card", "document.getElementById('difference').click()"),
    "sizes": ("rigid", "", "#figures", ""),
    "idle": ("rigid", "", "#timeline", "choose('group-of', 'Free GPUs'); choose('group-by', 'whether jobs wait')"),
    "shared": ("shared", "", "#moment", "choose('time', 9000)"),
}
"""As `PAGES`, of which there are pictures on a desktop only."""

ARENA = "arena --policies fifo,easy,srtf,tiresias --scenarios realistic,bursts,rigid,deadlines --seeds 6 --reports"

PRINTED = 794
"""Width of the report on A4 paper [px]."""

SCHEMES = ("light", "dark")
WINDOWS = {"desktop": 1280, "phone": 390}
"""Widths [px]."""

MOST_HEIGHT = 1000
"""Of a picture of a page [px]."""


LIVE_AT, TRACED = 6.0 * 3600, 3 * 3600 * 10**6
"""When the live view is drawn [s], and up to when a timeline is [µs]."""

SLICES = {
    "waiting": "#8a94a0",
    "restart": "#555555",
    "start": "#555555",
    "checkpoint": "#1f68b0",
    "lost": "#b3401a",
    "down": "#333333",
}

READ = (
    "run +experiment=fairness -o fairness",
    "paper reproduce table2 fig1 fig7 fig8a",
)
"""What notebooks read where it is there."""

COLOURS = 64
"""Of a plot: line art needs no more, and is a third of the size."""


def main() -> None:
    """Draw the pictures that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=IMAGES, help="folder to write to (default: docs/images)")
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA"), help="folder with osdi21 in it")
    parser.add_argument("--folder", type=Path, help="folder to work in and to leave (default: a temporary one)")
    options = parser.parse_args()
    if wrong := set(options.kinds) - set(KINDS):
        parser.error(f"KIND is {wrong.pop()}, must be one of {', '.join(KINDS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in options.kinds or KINDS:
            KINDS[kind](folder, options)


def draw_terminal(folder: Path, options: argparse.Namespace) -> None:
    """Draw what commands print, and cards against measurements where these are."""
    for file in ("slurm/sacct.txt", "philly.csv"):
        shutil.copy(FIXTURES / file, folder)
    for name, command, most_lines in TERMINAL:
        printed = _printed(command, folder)
        if name:
            _draw(options.output / f"{name}.svg", command, printed.splitlines()[:most_lines])
    if options.data is None:
        print("fit.png is left as it is: give --data or POLLUXSIM_DATA for it", file=sys.stderr)
        return
    measured = shlex.quote(str(Path(options.data).resolve() / "osdi21"))
    _printed(f"profile fit {measured} -o cards --figure fit.png", folder)
    shutil.copy(folder / "fit.png", options.output)


def draw_plots(folder: Path, options: argparse.Namespace) -> None:
    """Make the runs and plot them."""
    for command in RUNS:
        _printed(command, folder)
    for kind, rest in PLOTS.items():
        _printed(f"plot {kind} {rest} -o {kind}.svg", folder)
        (options.output / f"{kind}.svg").write_text(light_and_dark((folder / f"{kind}.svg").read_text()))


def draw_report(folder: Path, options: argparse.Namespace) -> None:
    """Make reports, and take pictures of them in headless Chromium."""
    for name, command in REPORTED.items():
        _printed(f"{command} -o of-{name}", folder)
        _printed(f"report of-{name} -o {name}.html", folder)
    _printed(f"{ARENA} -o contest", folder)
    browser = headless()
    try:
        for name in (*PAGES, *WIDE_PAGES):
            for picture, shot in shots(browser, folder, name):
                _keep_page(options.output / picture, shot)
        for scheme in SCHEMES:
            shot = _shot(browser, (folder / "contest/arena.html").as_uri(), "main", (WINDOWS["desktop"], scheme, ""))
            _keep_page(options.output / f"report-arena-{scheme}.webp", shot)
        shot = _shot(browser, (folder / "runs.html").as_uri(), "main", (PRINTED, "print", ""))
        _keep_page(options.output / "report-print.webp", shot)
    finally:
        browser.quit()


def headless() -> Chrome:
    """Return a browser without a window."""
    chosen = ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        chosen.add_argument(argument)
    return Chrome(options=chosen, service=ChromeService(shutil.which("chromedriver")))


def shots(browser: Any, folder: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the pictures of a part of a report, on a desktop and perhaps on a phone, light and dark."""
    report, place, part, script = {**PAGES, **WIDE_PAGES}[name]
    for window, width in WINDOWS.items() if name in PAGES else [("desktop", WINDOWS["desktop"])]:
        for scheme in SCHEMES:
            shot = _shot(browser, (folder / f"{report}.html").as_uri() + place, part, (width, scheme, script))
            yield f"report-{name}-{window}-{scheme}.webp", shot


def draw_live(_: Path, options: argparse.Namespace) -> None:
    """Draw the live view in the middle of a run in which nodes fail, as of one simulated hour a second."""
    choices = {"policy": "tiresias", "cluster/failures": "rsc-2", "engine/checkpoints": "interval"}
    spec = composed(choices, {"cluster": {"failures.rate": 200.0}}, 0)
    execution, seen = Execution(spec), list[str]()
    live.perf_counter = lambda: 0.0
    picture = live.Picture(execution.workload, execution.cluster)
    picture.keys = "space: pause, q: quit"

    def watch(run: Simulation) -> None:
        live.perf_counter = lambda: run.time / 3600
        if run.time < LIVE_AT:
            picture.show(run)
        elif not seen:
            console = Console(record=True, width=80, height=26, file=io.StringIO())
            console.print(picture, height=26)
            seen.append(console.export_svg(title="", theme=MONOKAI, unique_id="live"))

    execution.simulate(watch)
    _keep_svg(options.output / "live.svg", seen[0])


def draw_timeline(folder: Path, options: argparse.Namespace) -> None:
    """Draw what a timeline's file holds of one node and some jobs in three hours, as Perfetto lays it out."""
    _printed(f"{REPORTED['failing']} -o of-failing", folder)
    _printed("timeline of-failing -o failing.json", folder)
    found = json.loads((folder / "failing.json").read_text())["traceEvents"]
    names = {each["tid"]: each["args"]["name"] for each in found if each["name"] == "thread_name"}
    slices = [each for each in found if each["ph"] == "X" and each["ts"] < TRACED and each["ts"] + each["dur"] > 0]
    gpus = [tid for tid, name in names.items() if name.startswith("GPU ")][:8]
    jobs = [tid for tid, name in names.items() if not name.startswith("GPU ")][:12]
    places = {tid: place for place, tid in enumerate([*gpus, *jobs])}
    parts = [f'<text x="4" y="{21 * place + 15}">{names[tid]}</text>' for tid, place in places.items()]
    for each in sorted((each for each in slices if each["tid"] in places), key=lambda each: -each["dur"]):
        x, end = (90 + 870 * min(time, TRACED) / TRACED for time in (each["ts"], each["ts"] + each["dur"]))
        colour = SLICES.get(each["name"], application_colour(each.get("args", {}).get("application", "")))
        wide, y = max(end - x, 0.6), 21 * places[each["tid"]] + 3
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="17" style="fill: {colour}"/>')
        if wide > 8 * len(each["name"]):
            parts.append(f'<text x="{x + 3:.1f}" y="{y + 12}" style="fill: #ffffff">{each["name"]}</text>')
    look = f'viewBox="0 0 964 {21 * len(places) + 6}" font-family="system-ui, sans-serif" font-size="11"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {look}>{"".join(parts)}</svg>'
    (options.output / "timeline.svg").write_text(light_and_dark(svg) + "\n")


def draw_notebooks(folder: Path, _: argparse.Namespace) -> None:
    """Run each notebook where what it reads is there, and keep it as a page, its figures beside it."""
    for command in READ:
        _printed(command, folder)
    EXECUTED.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        print(path.name, flush=True)
        notebook = nbformat.read(path, 4)
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
        for data in (output.data for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output):
            if "text/html" in data:  # Markdown knows a block by its element
                data["text/html"] = f"<div>{data['text/html']}</div>"
        page, made = MarkdownExporter().from_notebook_node(notebook, {"unique_key": path.stem})
        page = re.sub(rf"{tempfile.gettempdir()}/\w+/", "", page).strip()
        (EXECUTED / f"{path.stem}.md").write_text(page + "\n", encoding="utf-8")
        for name, picture in made["outputs"].items():
            _keep_picture(io.BytesIO(picture), EXECUTED / name)


KINDS = {
    "terminal": draw_terminal,
    "plots": draw_plots,
    "report": draw_report,
    "live": draw_live,
    "timeline": draw_timeline,
    "notebooks": draw_notebooks,
}


def _shot(browser: Any, address: str, part: str, look: tuple[int, str, str]) -> bytes:
    width, scheme, script = look
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    medium = {"media": "print" if scheme == "print" else "screen", "features": wanted}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", medium)
    browser.get("about:blank")
    browser.get(address)
    has_script = "document.getElementById('charts') !== null"
    ready = f"return !({has_script}) || document.documentElement.dataset.ready === 'true'"
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(ready))
    browser.execute_script(f"{CHOOSE} {script}")
    browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 200))")
    box = "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    x, y, wide, high = browser.execute_script(f"scrollTo(0, 0); {box}", part)
    clip = {"x": x, "y": y, "width": wide, "height": min(high, MOST_HEIGHT), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    return b64decode(taken["data"])


def _keep_page(path: Path, shot: bytes) -> None:
    with Image.open(io.BytesIO(shot)) as image:
        image.save(path, quality=45, method=6)


def _keep_picture(picture: Path | io.BytesIO, path: Path) -> None:
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _printed(command: str, folder: Path) -> str:
    print(f"$ polluxsim {command}", flush=True)
    environment = os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "polluxsim", *shlex.split(command)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    done = subprocess.run(call, cwd=folder, text=True, check=True, env=environment, **quiet)
    return done.stdout.replace(f"{folder.resolve()}/", "")


def _draw(path: Path, command: str, lines: list[str]) -> None:
    text = Text.from_ansi("\n".join(lines))
    prompt = Text(f"$ polluxsim {command}", style="bold")
    width = max(NARROWEST, *(line.cell_len + 1 for line in [*text.split(), prompt]))
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(prompt)
    console.print(text)
    _keep_svg(path, console.export_svg(title="", theme=MONOKAI, unique_id=path.stem))


def _keep_svg(path: Path, svg: str) -> None:
    # Web fonts would be asked for over the network: the reader's own monospace will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", FONTS)
    path.write_text(svg.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
