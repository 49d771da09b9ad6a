// The chosen run by application, user, queue or GPUs asked for: GPUs over time, one group on the other, and what each had.
"use strict";
polluxReport.groups = (() => {
  const { format, data, chart } = polluxReport;
  const MOST = 8, OTHERS = "others";
  const KINDS = {
    application: (run, job) => run.applications[run.jobApplication[job]],
    user: (run, job) => run.users[job] || "nobody named",
    queue: (run, job) => run.queues[job] || "nobody named",
    "GPUs asked for": (run, job) => format.plural(run.jobAsked[job], "GPU"),
  };
  let figure, run, start, width, select;

  function init(axis, all) {
    ({ start, width } = all);
    figure = chart.make(document.getElementById("groups"), { height: 150, label: "GPUs by group over time", x: axis, y: { start: 0, end: 1 } });
    select = document.getElementById("group-by");
    select.addEventListener("change", apply);
  }

  function show(next) {
    run = next;
    const kinds = Object.keys(KINDS).filter((kind) => (kind !== "user" || run.users.length) && (kind !== "queue" || run.queues.length) && (kind !== "GPUs asked for" || run.jobAsked.some(Boolean)));
    const before = select.value;
    select.replaceChildren(...kinds.map((kind) => format.element("option", { value: kind }, kind)));
    if (kinds.includes(before)) select.value = before;
    apply();
  }

  function apply() {
    const groups = new Map(), of = KINDS[select.value];
    for (let job = 0; job < run.numJobs; job++) {
      const name = of(run, job), life = data.endOf(run, job) - run.jobSubmit[job];
      if (!(life >= 0)) continue;
      if (!groups.has(name)) groups.set(name, { name, jobs: 0, life: 0, waited: 0, service: 0 });
      const group = groups.get(name);
      group.jobs++;
      group.life += life;
      group.waited += run.jobStart[job] < 0 ? life : run.jobStart[job] - run.jobSubmit[job];
      group.service += run.jobGpuSeconds[job];
    }
    const found = [...groups.values()].sort((a, b) => b.service - a.service), colors = new Map(run.legend);
    found.forEach((group, i) => { group.color = (select.value === "application" && colors.get(group.name)) || `hsl(${(i * 137.5 + 265) % 360} 45% 55%)`; });
    const shown = found.length > MOST ? [...found.slice(0, MOST - 1), { name: OTHERS, color: "#8a94a0" }] : found;
    stack(shown, of);
    const late = [...found].sort((a, b) => b.waited / b.jobs - a.waited / a.jobs);
    format.fill("group-rows", ...found.slice(0, 100).map((group) => format.element("tr", {},
      format.element("th", { scope: "row" }, group.name), ...[format.number(group.jobs), format.span(group.life / group.jobs), format.span(group.waited / group.jobs), format.number(late.indexOf(group) + 1), format.number(group.service / 3600, 1)]
        .map((cell) => format.element("td", {}, cell)))));
    document.getElementById("group-name").textContent = select.value;
    format.fill("group-legend", ...shown.map(({ name, color }) => format.element("li", { style: ["--color", color] }, name)));
  }

  // GPU-time of each group in each bin, from the rectangles that jobs held.
  function stack(shown, of) {
    const count = Math.max(Math.ceil((run.end - start) / width), 1), place = new Map(shown.map(({ name }, i) => [name, i]));
    const gpus = shown.map(() => new Float64Array(count)), edges = Array.from({ length: count + 1 }, (_, i) => Math.min(start + i * width, run.end));
    for (let i = 0; i < run.heldStart.length; i++) {
      const row = gpus[place.get(of(run, run.heldJob[i])) ?? shown.length - 1];
      for (let bin = Math.max(Math.floor((run.heldStart[i] - start) / width), 0); bin < count && edges[bin] < run.heldEnd[i]; bin++) {
        const overlap = Math.min(run.heldEnd[i], edges[bin + 1]) - Math.max(run.heldStart[i], edges[bin]);
        if (overlap > 0) row[bin] += overlap * run.heldGpus[i] / (edges[bin + 1] - edges[bin]);
      }
    }
    let low = new Float64Array(count);
    figure.areas = shown.map(({ name, color }, i) => {
      const high = low.map((value, bin) => value + gpus[i][bin]), each = { x: edges, low, high, color, name, y: gpus[i] };
      low = high;
      return each;
    });
    figure.y.end = 1.06 * low.reduce((a, b) => Math.max(a, b), 1);
    figure.draw();
  }

  const tell = (time) => [...figure.areas].reverse().map((each) => [each.color, each.name, format.inUnit(chart.valueAt(each, time) ?? 0)]);

  return { init, show, tell, draw: () => figure.draw(), holds: (element) => figure.host.contains(element) };
})();
