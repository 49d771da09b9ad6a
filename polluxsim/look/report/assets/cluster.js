// The cluster at a moment: every GPU a square in its job's colour, and who runs and who waits.
"use strict";
polluxReport.cluster = (() => {
  const { format, data } = polluxReport;
  const GAP = 0.7, MOST_CHIPS = 24, MOST_NUMBERED = 160;
  let plot, gpus, nodes, run, places = [], time = 0;

  function init(model) {
    plot = model("cluster"); gpus = model("cluster-gpus"); nodes = model("cluster-nodes");
    polluxReport.page.onResize(plot, () => { if (run) { layOut(); draw(); } });
  }

  function show(next) { run = next; layOut(); }

  // Nodes in lines, the GPUs of each in a block as square as may be, in squares as large as the figure lets them be.
  function layOut() {
    const most = Math.max(...run.gpusPerNode), wide = Math.ceil(Math.sqrt(most)), high = Math.ceil(most / wide);
    const frame = polluxReport.page.frame(plot), ratio = Math.max(frame.width, 100) / Math.max(frame.height, 100);
    const columns = Math.min(run.gpusPerNode.length,
      Math.max(1, Math.ceil(Math.sqrt(run.gpusPerNode.length * ratio * (high + GAP) / (wide + GAP)))));
    const lines = Math.ceil(run.gpusPerNode.length / columns);
    places = run.nodeOfRow.map((node, row) => {
      const slot = run.slotOfRow[row];
      return [(node % columns) * (wide + GAP) + (slot % wide) + 0.5,
        Math.floor(node / columns) * (high + GAP) + Math.floor(slot / wide) + 0.5 + GAP];
    });
    const width = columns * (wide + GAP) - GAP, height = lines * (high + GAP);
    const scale = Math.max(width / ratio, height);
    plot.x_range.setv({ start: 0, end: scale * ratio });
    plot.y_range.setv({ start: scale, end: 0 });
    const numbered = run.gpusPerNode.length <= MOST_NUMBERED;
    const of = numbered ? run.gpusPerNode.map((_, node) => node) : [];
    nodes.data = { x: of.map((node) => (node % columns) * (wide + GAP) + 0.05),
      y: of.map((node) => Math.floor(node / columns) * (high + GAP) + GAP - 0.02), text: of.map(String) };
  }

  function at(moment) { time = moment; draw(); }

  function draw() {
    const style = getComputedStyle(document.documentElement), idle = style.getPropertyValue("--idle").trim();
    const held = places.map((_, row) => data.holding(run, row, time));
    gpus.data = {
      x: places.map((place) => place[0]), y: places.map((place) => place[1]),
      color: held.map((i) => (i < 0 ? idle : run.color[run.heldJob[i]])),
      line: held.map((i) => (i < 0 ? style.getPropertyValue("--line").trim() : run.color[run.heldJob[i]])),
      node: run.nodeOfRow, gpu: run.slotOfRow,
      job: held.map((i) => (i < 0 ? "idle" : run.jobs[run.heldJob[i]])),
      held: held.map((i) => (i < 0 ? "" : `held from ${format.hours(run.heldStart[i])} to ${format.hours(run.heldEnd[i])}`)),
    };
    tell();
  }

  function tell() {
    const now = data.at(run, time), all = run.numRows;
    format.facts("moment-numbers", [
      ["GPUs in use", `${format.number(now.gpus)} of ${format.number(all)}`],
      ["running", format.plural(now.running.length, "job")],
      ["waiting", format.plural(now.waiting.length, "job")],
      ["efficiency", now.gpus ? format.percent(now.efficiency) : "–"],
    ]);
    now.running.sort((a, b) => data.gpusAt(run, b, time) - data.gpusAt(run, a, time));
    chips("running", now.running, (job) => format.plural(data.gpusAt(run, job, time), "GPU"));
    chips("waiting", now.waiting, (job) => `since ${format.span(time - waitsSince(job))}`);
  }

  function waitsSince(job) {
    const change = data.changeAt(run, job, time);
    return change < 0 ? run.jobSubmit[job] : run.changeTime[change];
  }

  function chips(id, jobs, more) {
    const shown = jobs.slice(0, MOST_CHIPS).map((job) => format.element("li", {},
      format.element("a", { href: format.jobLink(run, job), style: ["--color", run.color[job]] },
        run.jobs[job], " ", format.element("small", {}, more(job)))));
    if (jobs.length > MOST_CHIPS) shown.push(format.element("li", {}, `and ${format.number(jobs.length - MOST_CHIPS)} more`));
    if (!jobs.length) shown.push(format.element("li", {}, "nobody"));
    format.fill(id, ...shown);
  }

  function tapped(x, y) {
    const row = places.findIndex(([px, py]) => Math.abs(px - x) < 0.5 && Math.abs(py - y) < 0.5);
    const held = row < 0 ? -1 : data.holding(run, row, time);
    if (held >= 0) location.hash = format.jobLink(run, run.heldJob[held]);
  }

  return { init, show, at, draw, tapped };
})();
