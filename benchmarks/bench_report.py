"""Measure the report of three runs of 160 jobs: processor time, size, and a move of its slider in headless Chromium.

    python benchmarks/bench_report.py [--moves 100]

The time of a move is the processor time of all tasks of the page (`TaskDuration`), with two frames. The first moves are
not counted, because the browser compiles the scripts meanwhile.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.ui import WebDriverWait

POLICIES = ("pollux", "tiresias", "optimus")
UNCOUNTED = 40
"""Moves before the measurement."""

MOVE = """
  const time = document.getElementById("time"), done = arguments[1];
  time.value = Number(time.min) + arguments[0] * (time.max - time.min);
  time.dispatchEvent(new Event("input"));
  requestAnimationFrame(() => requestAnimationFrame(() => done()));
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=100)
    moves = parser.parse_args().moves
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for policy in POLICIES:
            polluxsim(folder, "run", f"policy={policy}", "-o", policy)
        seconds = polluxsim(folder, "report", *POLICIES, "-o", "report.html")
        page = folder / "report.html"
        print(f"report: {seconds:.2f} s of processor time, {page.stat().st_size / 1e6:.2f} MB")
        print(f"move of the slider: {1000 * slider(page, moves):.1f} ms")


def polluxsim(folder: Path, *arguments: str) -> float:
    """Run a command, and return its processor time [s]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [sys.executable, "-m", "polluxsim", *arguments]
    subprocess.run(call, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def slider(page: Path, moves: int) -> float:
    """Return the mean time of the page's tasks for a move of the slider [s]."""
    options = ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,900"):
        options.add_argument(argument)
    browser = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        browser.get(page.as_uri())
        ready = "return document.documentElement.dataset.ready === 'true'"
        WebDriverWait(browser, 30).until(lambda _: browser.execute_script(ready))
        browser.execute_script("document.getElementById('moment').scrollIntoView()")
        browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        for number in range(UNCOUNTED):
            browser.execute_async_script(MOVE, number / UNCOUNTED)
        before = tasks(browser)
        for number in range(moves):
            browser.execute_async_script(MOVE, number / moves)
        return (tasks(browser) - before) / moves
    finally:
        browser.quit()


def tasks(browser: Any) -> float:
    """Return the time that tasks of the page have taken so far [s]."""
    found = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


if __name__ == "__main__":
    main()
