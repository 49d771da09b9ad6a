// The cluster at a moment: every GPU a square in its job's colour, and who runs and who waits.
"use strict";
polluxReport.cluster = (() => {
  const { format, data, map } = polluxReport, { overTime } = polluxReport.metrics;
  const GAP = 0.8, LARGEST = 34, MOST_CHIPS = 24;
  let canvas, box, run, places = [], size = 1, time = 0, found = -1;

  function init() {
    canvas = document.getElementById("cluster");
    box = polluxReport.chart.readout(canvas.parentElement);
    new ResizeObserver(() => { if (run) { layOut(); draw(); } }).observe(canvas.parentElement);
    canvas.addEventListener("pointermove", (event) => {
      const row = rowAt(event);
      if (row < 0) box.hide(); else box.show(event.offsetX, event.offsetY, format.clock(time), map.tellGpu(row, time));
    });
    canvas.addEventListener("pointerleave", () => box.hide());
    canvas.addEventListener("click", (event) => {
      const row = rowAt(event), held = row < 0 ? -1 : data.holding(run, row, time);
      if (held >= 0) location.hash = format.jobLink(run, run.heldJob[held]);
    });
  }

  function show(next) { run = next; found = -1; layOut(); }

  // A block for each node, as square as may be without a hole.
  function block(gpus) {
    const root = Math.ceil(Math.sqrt(gpus));
    for (let wide = root; wide <= Math.min(gpus, 3 * root); wide++) if (gpus % wide === 0) return [wide, gpus / wide];
    return [root, Math.ceil(gpus / root)];
  }

  // Nodes in lines, in squares as large as the width lets them be.
  function layOut() {
    const [wide, high] = block(Math.max(...run.gpusPerNode)), room = canvas.parentElement.clientWidth, count = run.gpusPerNode.length;
    const tallest = Math.max(320, Math.min(innerHeight * 0.6, 640));
    let columns, lines;
    for (size = LARGEST; ; size--) {
      columns = Math.min(count, Math.max(1, Math.floor(room / ((wide + GAP) * size))));
      lines = Math.ceil(count / columns);
      if (size === 3 || (lines * (high + 2 * GAP) * size <= tallest && columns * (wide + GAP) * size <= room)) break;
    }
    places = run.nodeOfRow.map((node, row) => {
      const [own] = block(run.gpusPerNode[node]), slot = run.slotOfRow[row];
      return [(node % columns) * (wide + GAP) + slot % own, Math.floor(node / columns) * (high + 2 * GAP) + Math.floor(slot / own) + GAP];
    });
    const ratio = devicePixelRatio || 1;
    canvas.width = room * ratio;
    canvas.height = lines * (high + 2 * GAP) * size * ratio;
    canvas.style.height = `${lines * (high + 2 * GAP) * size}px`;
  }

  function at(moment) { time = moment; draw(); tell(); }
  function find(job) { found = job; draw(); }

  function draw() {
    if (!canvas.width) return; // the page of a job hides the cluster
    const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), ratio = devicePixelRatio || 1;
    const [idle, muted] = ["--idle", "--muted"].map((name) => style.getPropertyValue(name).trim()), hatched = map.hatched(pen);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = "11px system-ui, sans-serif";
    // Nodes have their numbers above them, and the first of each type of GPU its name, where there is room.
    const numbered = pen.measureText(String(run.gpusPerNode.length)).width < (block(run.gpusPerNode[0])[0] + GAP) * size && GAP * size > 9;
    const several = new Set(run.nodeTypes).size > 1, wide = block(Math.max(...run.gpusPerNode))[0] + GAP;
    const named = (node) => {
      const name = `${node} ${run.nodeTypes[node]}`, isFirst = several && run.nodeTypes[node] !== run.nodeTypes[node - 1];
      return isFirst && pen.measureText(name).width < wide * size ? name : String(node);
    };
    places.forEach(([x, y], row) => {
      const all = data.holders(run, row, time).map((held) => run.heldJob[held]), width = size * 0.9;
      if (all.length || map.without(row, time) === "idle") {
        // A GPU that jobs share is split among them.
        (all.length ? all : [-1]).forEach((job, place, { length }) => {
          pen.globalAlpha = found >= 0 && job !== found ? 0.2 : 1;
          pen.fillStyle = job < 0 ? idle : run.color[job];
          pen.fillRect(x * size, y * size + place * width / length, width, width / length);
        });
      } else {
        pen.globalAlpha = found >= 0 ? 0.2 : 1;
        pen.fillStyle = hatched;
        pen.fillRect(x * size, y * size, width, width);
      }
      pen.globalAlpha = 1;
      pen.fillStyle = muted;
      if (numbered && run.slotOfRow[row] === 0) pen.fillText(named(run.nodeOfRow[row]), x * size, y * size - 3);
    });
  }

  // The jobs on each GPU by name, or why it has none.
  const holders = () => places.map((_, row) => data.holders(run, row, time).map((held) => run.jobs[run.heldJob[held]]).join(", ") || map.without(row, time));

  function rowAt(event) {
    const x = event.offsetX / size, y = event.offsetY / size;
    return places.findIndex(([left, top]) => x >= left && x < left + 0.95 && y >= top && y < top + 0.95);
  }

  function tell() {
    const now = data.at(run, time);
    const facts = [
      [overTime.gpus.title, `${format.number(now.gpus)} of ${format.number(now.capacity)}`],
      ["running", format.plural(now.running.length, "job")],
      ["waiting", format.plural(now.waiting.length, "job")],
    ];
    if (run.downRow.length) facts.push([overTime.nodes_down.title, format.number(now.nodesDown)]);
    if (run.isAdaptive) facts.push([overTime.efficiency.title, now.gpus ? format.percent(now.efficiency) : "–"]);
    if (run.isRented) {
      const requested = run.nodePrice ? Math.round(now.price / run.nodePrice) : now.nodes;
      facts.push(["nodes up", format.number(now.nodes)], ["starting", format.number(Math.max(requested - now.nodes, 0))],
        ["rented for", `$${format.number(now.price, 2)} an hour`]);
    }
    format.facts("moment-numbers", facts);
    format.fill("moment-events", ...data.eventsAt(run, time).map((text) => format.element("li", {}, text)));
    canvas.setAttribute("aria-label", `The cluster at ${format.clock(time)}: ${facts.map(([name, value]) => `${name} ${value}`).join(", ")}`);
    now.running.sort((a, b) => data.gpusAt(run, b, time) - data.gpusAt(run, a, time));
    chips("running", now.running, (job) => format.plural(data.gpusAt(run, job, time), "GPU"));
    chips("waiting", now.waiting, (job) => `for ${format.span(time - waitsSince(job))}`);
  }

  function waitsSince(job) {
    const change = data.changeAt(run, job, time);
    return change < 0 ? run.jobSubmit[job] : run.changeTime[change];
  }

  function chips(id, jobs, more) {
    const shown = jobs.slice(0, MOST_CHIPS).map((job) => format.element("li", {},
      format.linkTo(run, job, { style: ["--color", run.color[job]] }, run.jobs[job], " ", format.element("small", {}, more(job)))));
    if (jobs.length > MOST_CHIPS) shown.push(format.element("li", {}, `and ${format.number(jobs.length - MOST_CHIPS)} more`));
    format.list(id, shown, "nobody");
  }

  return { init, show, at, draw, find, holders, fit: () => { layOut(); draw(); } };
})();
