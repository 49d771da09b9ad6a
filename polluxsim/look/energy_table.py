"""A table of the energy of a run by user or queue, and sentences on its assumptions."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from polluxsim.look.tables import boxed
from polluxsim.statistics.energy import Consumption, Energy, EnergyPart


def energy_table(energy: Energy, by: str, name: str) -> Table:
    """Return the energy of the run `name` by user or queue, and of idle GPUs and all GPUs."""
    lines = [[by, "jobs", "GPU h", "kWh", "share"]]
    parts = {**energy.by_name, "idle GPUs": energy.idle}
    total_jobs = 0
    total_hours = 0.0
    total_kwh = 0.0
    for label, part in parts.items():
        # Idle GPUs belong to no job. A 0 would look like a count of jobs.
        jobs = str(part.jobs) if part.jobs else "–"
        lines.append([label, jobs, *_cells(part, energy.kwh)])
        total_jobs += part.jobs
        total_hours += part.gpu_hours
        total_kwh += part.kwh
    total = EnergyPart(total_jobs, total_hours, total_kwh)
    lines.append(["all", str(total.jobs), *_cells(total, energy.kwh)])
    return boxed(lines, f"Energy of {name} by {by}")


def _cells(part: EnergyPart, total: float) -> list[str]:
    """Return the GPU hours, the energy [kWh], and its share of a total [kWh], as texts."""
    share = 0.0
    # GPUs of a type with `--power TYPE=0:0` take no energy.
    if total:
        share = part.kwh / total
    return [f"{part.gpu_hours:,.1f}", f"{part.kwh:,.1f}", f"{100 * share:.1f} %"]


def assumptions(energy: Energy, consumption: Consumption) -> Iterator[str]:
    """Yield sentences on the power, the PUE, and what the energy leaves out."""
    for name, power in energy.power.items():
        busy = power.busy(consumption.busy_share)
        words = f"a GPU of type {name} draws {busy:g} W with a job and {power.idle:g} W without"
        yield f"{words}; the peak is {power.peak:g} W"
    pue = f"with a PUE of {consumption.pue:g}"
    if consumption.pue == 1:
        # The default is no measurement. The sentence names the option that states the PUE of a building.
        pue = "without the cooling of the building (--pue)"
    yield f"energy of GPUs only, {pue}; CPUs, memory and network are left out, and GPUs of nodes that are down"
