"""Draw the pictures of the documentation again: `python docs/pictures.py`, in a checkout with polluxsim installed.

`terminal` are those of the commands page: what a command prints, as an SVG without web fonts. `plots` are those of the
figures page, from nothing but what is shipped. `report` is the page, as headless Chromium shows it. `notebooks` runs
each notebook and keeps it as a page with its figures; the sweep and the tables it reads take half an hour. Commands run
in a folder, a temporary one or `--folder`, that those before them left. All come out the same again, but for
`scaling.png`, which shows wall-clock times. `fit.png` needs the measured profiles, `conformance.svg` Muri's traces.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
EXECUTED = Path(__file__).parent / "executed"
FIXTURES = ROOT / "tests" / "logs" / "fixtures"
WIDTH = 104
NARROWEST = 84
FONTS = "Menlo, Consolas, DejaVu Sans Mono"

# Name of the picture, if there is to be one, the command line, and lines to keep of what it prints.
TERMINAL = [
    ("run", "run hydra.run.dir=pollux", 40),
    ("", "run policy=tiresias hydra.run.dir=tiresias", 0),
    ("", "run policy=optimus hydra.run.dir=optimus", 0),
    ("table", "table pollux tiresias optimus", 40),
    ("compare", "compare pollux tiresias", 40),
    ("whatif", "whatif tiresias --at 3h policy=srtf --drop-node 3", 60),
    ("size", "size workload=philly-like-rigid policy=fifo --target 'p90 wait < 1h'", 40),
    ("generate", "generate workload.csv --jobs 40 --seed 1", 40),
    ("sample", "sample philly.csv sampled.csv --jobs 3 --seed 1", 40),
    ("import", "import slurm sacct.txt jobs.parquet --gpus 64 --skip-bad", 40),
    ("calibrate", "calibrate jobs.parquet --gpus 16,32,64 --policies fifo,easy", 40),
    ("check", "check fifo --worlds 50", 40),
    ("arena", "arena --policies fifo srtf tiresias --scenarios rigid --seeds 6", 60),
    ("card", "card transformer gpt.yaml --params 1.3e9 --seq 2048 --gpu v100-32,a100-40,a100-80,h100", 40),
    ("reproduce", "reproduce fig1", 30),
    ("map", "map jobs.parquet mapped.csv", 40),
]


RUNS = (
    "run -m policy=pollux,tiresias,optimus hydra.sweep.dir=runs",
    "run -m policy.p=1,-1,-10 seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=80 hydra.sweep.dir=fairness",
    "run -m policy=tiresias seed=0,1,2,3,4,5 workload=philly-like workload.num_jobs=80 hydra.sweep.dir=baseline",
    "run -m policy.search=annealing,genetic cluster.num_nodes=16,32,64 hydra.sweep.dir=sizes",
)

PLOTS = {
    "jct-cdf": "runs",
    "jct-by-application": "runs",
    "usage": "runs",
    "job": "runs/0-policy=pollux --job imagenet-12 --job yolov3-1",
    "fairness-cdf": "runs",
    "sweep": "fairness baseline --x policy.p",
    "throughput": "--application cifar10 --application bert --application imagenet --application ncf",
    "scaling": "sizes --width 13",
    "batch-size": "--width 13",
    "training": "--width 8.5",
}

PAGES = {
    "report-desktop": ("", "main", 1280, "light"),
    "report-phone": ("", "main", 390, "light"),
    "report-timeline": ("", "#occupancy .card", 1280, "light"),
    "report-dark": ("", "#occupancy .card", 1280, "dark"),
    "report-job": ("#job/0/imagenet-12", "main", 1280, "light"),
}
"""Place and part of the report, the width of the window [px], and the scheme that is preferred."""

MOST_HEIGHT = 1300
"""Of a picture of a page [px]."""

READ = (
    f"run --config-dir {ROOT / 'experiments'} +experiment=fairness hydra.sweep.dir=fairness",
    "reproduce table2 fig1 fig7 fig8a",
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
        parser.error(f"KIND is {wrong.pop()}, allowed are {', '.join(KINDS)}")
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
    _printed(f"fit {shlex.quote(str(Path(options.data).resolve() / 'osdi21'))} cards --plot fit.png", folder)
    shutil.copy(folder / "fit.png", options.output)


def draw_plots(folder: Path, options: argparse.Namespace) -> None:
    """Make the runs and plot them."""
    for command in RUNS:
        _printed(command, folder)
    for kind, rest in PLOTS.items():
        _printed(f"plot {kind} {rest} -o {kind}.png", folder)
        _keep_picture(folder / f"{kind}.png", options.output / f"{kind}.png")


def draw_report(folder: Path, options: argparse.Namespace) -> None:
    """Make a report of three runs, and take pictures of it in headless Chromium."""
    _printed("run -m policy=pollux,tiresias,optimus hydra.sweep.dir=reported", folder)
    _printed("report reported -o report.html", folder)
    chosen = ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        chosen.add_argument(argument)
    browser = Chrome(options=chosen, service=ChromeService(shutil.which("chromedriver")))
    try:
        for name, (place, part, width, scheme) in PAGES.items():
            shot = _shot(browser, (folder / "report.html").as_uri() + place, part, width, scheme)
            _keep_picture(io.BytesIO(shot), options.output / f"{name}.png")
    finally:
        browser.quit()


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


KINDS = {"terminal": draw_terminal, "plots": draw_plots, "report": draw_report, "notebooks": draw_notebooks}


def _shot(browser: Any, address: str, part: str, width: int, scheme: str) -> bytes:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
    browser.get("about:blank")
    browser.get(address)
    ready = "return document.documentElement.dataset.ready === 'true'"
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(ready))
    box = "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    x, y, wide, high = browser.execute_script(f"scrollTo(0, 0); {box}", part)
    clip = {"x": x, "y": y, "width": wide, "height": min(high, MOST_HEIGHT), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    return b64decode(taken["data"])


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
    svg = console.export_svg(title="", theme=MONOKAI, unique_id=path.stem)
    # Web fonts would be asked for over the network: the reader's own monospace will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", FONTS)
    path.write_text(svg.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
