"""A run small enough to follow by hand, simulated runs, and their reports in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from polluxsim.records.results import (
    AllocationRecord,
    JobRecord,
    OutageRecord,
    ReasonRecord,
    ReasonText,
    Result,
    RoundRecord,
    Status,
)
from polluxsim.records.storage import write_run

if TYPE_CHECKING:
    from pathlib import Path

    from shared_runs import SharedRuns

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"


def hand_made() -> Result:
    """Two nodes of 4 GPUs: `small` holds one for an hour, `large` grows, is stopped, restarts on all 8; one waits.

    The third job's name is one that a page must not take for markup.
    """
    jobs = (
        JobRecord("small", "cifar10", 0.0, 60.0, 3660.0, 3660.0, 60.0, 0, 4 * 3600.0, Status.COMPLETED),
        JobRecord(
            "large", "imagenet", 100.0, 120.0, 7200.0, 7100.0, 20.0, 2, 2 * 1680 + 4 * 1800 + 8 * 3000.0, "completed"
        ),  # type: ignore[arg-type]
        JobRecord(HOSTILE, "ncf", 200.0, None, None, None, None, 0, 0.0, Status.CUT_OFF),
    )
    allocations = (
        AllocationRecord(60.0, "small", (0,), (4,), 512, 0),
        AllocationRecord(120.0, "large", (1,), (2,), 400, 0),
        AllocationRecord(900.0, "large", (1,), (2,), 800, 1),
        AllocationRecord(1800.0, "large", (1,), (4,), 800, 0),
        AllocationRecord(3600.0, "large", (), (), 0, 0),
        AllocationRecord(3660.0, "small", (), (), 0, 0),
        AllocationRecord(4200.0, "large", (0, 1), (4, 4), 1600, 0),
        AllocationRecord(7200.0, "large", (), (), 0, 0),
    )
    rounds = tuple(RoundRecord(60.0 * i, 2, 4, 10.0, 0.75) for i in range(1, 120))
    said = {"gpus_needed": 8.0, "gpus_left": 4.0, "position": 2.0}
    reasons = tuple(ReasonRecord(t, "large", "kept waiting", (*said.items(),), ("small",)) for t in (3600.0, 3720.0))
    outages = (OutageRecord(3600.0, 4100.0, 1, 4, "failure"),)
    texts = {"kept waiting": ReasonText("", {"gpus_needed": "GPUs", "gpus_left": "GPUs"})}
    return Result(jobs, rounds, allocations, 7200.0, reason_records=reasons, outage_records=outages, reason_texts=texts)


CONFIG = {
    "policy": {"_target_": "polluxsim.policies.ordered.classic.Fifo"},
    "cluster": {"_target_": "polluxsim.hardware.clusters.Cluster.uniform", "num_nodes": 2, "gpus_per_node": 4},
    "engine": {"round_interval": 60.0, "restart_delay": 30.0, "interference": 0.0},
    "workload": {"_target_": "polluxsim.workloads.workload.WorkloadFile", "path": "somewhere/by-hand.csv"},
    "seed": 7,
}


def write_hand_made(folder: Path, **config: Any) -> Path:
    write_run(folder, hand_made(), {"config": CONFIG | config, "seed": 7, "nodes": [[2, 4]]})
    return folder


@pytest.fixture(scope="session")
def simulated(shared_runs: SharedRuns) -> dict[str, Path]:
    """Return the folders of runs of one workload under two policies."""
    workload = ("workload=philly-like", "workload.num_jobs=30", "workload.hours=2")
    return {policy: shared_runs.run(policy, *workload) for policy in ("pollux", "tiresias")}


@dataclass
class Page:
    """An open report."""

    browser: Any
    actions: Any = None

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def deep(self, selector: str) -> list[Any]:
        """Return the elements in sight that fit a selector."""
        script = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent !== null)"
        return list(self.run(script, selector))

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.deep(selector)]

    def text(self, selector: str) -> str:
        (found,) = self.deep(selector)
        return str(found.text)

    def until(self, script: str, what: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, 60).until(lambda _: self.run(script), what)

    def column(self, name: str) -> list[str]:
        """Return what stands in a column of the table of jobs, from the top."""
        script = """
          const heads = [...document.querySelectorAll("#job-head button")].map((button) => button.firstChild.data);
          const rows = [...document.querySelectorAll("#job-body tr:not(.space)")];
          return rows.map((row) => row.children[heads.indexOf(arguments[0])].innerText);
        """
        return list(self.run(script, name))

    def place(self, element: str, x: float, y: float) -> tuple[int, int]:
        """Return the point of the window at shares of an element's width and height, after scrolling there."""
        script = """
          const found = document.getElementById(arguments[0]);
          found.scrollIntoView({ block: "center", behavior: "instant" });
          const { left, top, width, height } = found.getBoundingClientRect();
          return [left + arguments[1] * width, top + arguments[2] * height];
        """
        x, y = self.run(script, element, x, y)
        return round(x), round(y)

    def hover(self, x: int, y: int) -> list[str]:
        """Return what boxes beside the pointer say when it comes to a point of the window."""
        self.pointer().move_to_location(x, y)
        self.perform()
        return self.texts(".readout")

    def pointer(self) -> Any:
        from selenium.webdriver.common.action_chains import ActionChains

        self.actions = ActionChains(self.browser, duration=0)
        return self.actions.w3c_actions.pointer_action

    def perform(self) -> None:
        self.actions.perform()


def opened(browser: Any, path: Path, place: str = "") -> Page:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri() + place)
    page = Page(browser)
    page.until("return document.documentElement.dataset.ready === 'true'", "the report is ready")
    return page
