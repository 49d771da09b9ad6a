// What the cluster and the queue are made of: GPUs in use, jobs that wait or free GPUs over time, one group on the other.
"use strict";
polluxReport.groups = (() => {
  const { format, data, chart } = polluxReport;
  const MOST = 8, OTHERS = "others", LOST = "GPUs lost to failures", LIMITS = [60, 600, 3600, 21600, 86400];
  const OF_JOBS = {
    application: (run, job) => run.applications[run.jobApplication[job]],
    user: (run, job) => run.users[job] || "nobody named",
    queue: (run, job) => run.queues[job] || "nobody named",
    "GPUs asked for": (run, job) => format.plural(run.jobAsked[job], "GPU"),
  };
  // What can be stacked, by what; each gives stretches of time: from, to, the group, and how much of it there is.
  const CONTENTS = {
    "GPUs in use": { ...OF_JOBS },
    "Jobs that wait": { ...OF_JOBS, cause: causes, "time they have waited": ages },
    "Free GPUs": { "how many are free on their node": fragments },
    [LOST]: { node: lostByNode, cause: lostByCause },
  };
  const ORDERED = { cause: ["between rounds", "no GPUs", "behind others", "restarting"],
    "time they have waited": [...LIMITS.map((limit) => `up to ${format.span(limit)}`), "longer"] };
  const NOTES = {
    cause: "Between rounds: until the next round. No GPUs: fewer were free than the job asks for. Behind others: enough were free, and not for it. Restarting: it holds GPUs and does not train yet.",
    [LOST]: "GPUs of nodes that are down, and GPUs whose training a failure undid. A node counts for the GPU time that its failures cost.",
    "how many are free on their node": "Free GPUs in small pieces are of no use to a job that wants many on one node.",
  };
  let figure, run, start, width, content, select;

  function init(axis, all) {
    ({ start, width } = all);
    figure = chart.make(document.getElementById("groups"), { height: 150, label: "The cluster or its queue by group, over time", x: axis, y: { start: 0, end: 1 }, forks: all.forks });
    [content, select] = ["group-of", "group-by"].map((id) => document.getElementById(id));
    content.addEventListener("change", choose);
    select.addEventListener("change", apply);
  }

  function show(next) {
    const before = content.value;
    run = next;
    format.options(content, Object.keys(CONTENTS).filter((name) => name !== LOST || run.downRow.length || run.lostNode.length));
    if (before) content.value = before;
    if (!content.value) content.selectedIndex = 0;
    choose();
  }

  function choose() {
    const says = { user: run.users.length, queue: run.queues.length, "GPUs asked for": run.jobAsked.some(Boolean) };
    const kinds = Object.keys(CONTENTS[content.value]).filter((kind) => says[kind] ?? true), before = select.value;
    format.options(select, kinds);
    if (kinds.includes(before)) select.value = before;
    apply();
  }

  function* held(of) { for (let i = 0; i < run.heldStart.length; i++) yield [run.heldStart[i], run.heldEnd[i], of(run, run.heldJob[i]), run.heldGpus[i]]; }

  function* waits() { for (let job = 0; job < run.numJobs; job++) for (const [from, to] of data.waitsOf(run, job)) yield [from, to, job]; }

  function* waiting(of) { for (const [from, to, job] of waits()) yield [from, to, of(run, job), 1]; }

  function* ages() {
    for (const [from, to] of waits()) {
      let since = from;
      for (const [i, name] of ORDERED["time they have waited"].entries()) {
        const until = Math.min(to, from + (LIMITS[i] ?? Infinity));
        if (until > since) yield [since, until, name, 1];
        since = until;
      }
    }
  }

  // A wait begins with that for the next round; from then on it is one for GPUs, or behind others.
  function* causes() {
    const short = new Map(), free = data.freeGpus(run), isElastic = run.changeGpus.some((gpus, i) => gpus > 0 && gpus !== run.jobAsked[run.changeJob[i]]);
    for (const [from, to, job] of waits()) {
      const need = isElastic ? 1 : Math.max(run.jobAsked[job], 1);
      if (!short.has(need)) short.set(need, data.timeBelow(free, need));
      const round = Math.min(run.roundTime[data.lastUpTo(run.roundTime, from - 1e-9) + 1] ?? to, to), below = short.get(need);
      yield [from, round, "between rounds", 1];
      yield [round, to, "no GPUs", 1, (a, b) => below(b) - below(a)];
      yield [round, to, "behind others", 1, (a, b) => b - a - (below(b) - below(a))];
    }
    for (let job = 0; job < run.numJobs; job++) for (const [from, to] of data.startsOf(run, job)) yield [from, to, "restarting", 1];
  }

  // Free GPUs of each node, as long as they are as many.
  function* fragments() {
    const free = [...run.gpusPerNode], since = new Float64Array(free.length);
    for (const [time, node, change] of [...data.turnover(run), ...free.map((_, node) => [run.end, node, 0])]) {
      const whole = Math.round(free[node]); // parts of a GPU that jobs share come and go together
      if (whole > 0 && time > since[node]) yield [since[node], time, `${whole} of ${run.gpusPerNode[node]}`, whole];
      since[node] = time;
      free[node] += change;
    }
  }

  // GPUs that failures cost, by node: those of nodes that are down, and those whose training a failure undid.
  function* lostGpus() {
    for (let i = 0; i < run.downRow.length; i++) yield [run.downStart[i], run.downEnd[i], run.nodeOfRow[run.downRow[i]], run.downRows[i], "node down"];
    for (let i = 0; i < run.lostNode.length; i++) yield [run.lostStart[i], run.lostEnd[i], run.lostNode[i], run.lostGpus[i], "training undone"];
  }
  function* lostByNode() { for (const [from, to, node, gpus] of lostGpus()) yield [from, to, node < run.gpusPerNode.length ? `node ${node}` : "the job itself", gpus]; }
  function* lostByCause() { for (const [from, to, , gpus, cause] of lostGpus()) yield [from, to, cause, gpus]; }

  function apply() {
    const kind = select.value, of = CONTENTS[content.value][kind], isOfJobs = kind in OF_JOBS;
    const found = bins(isOfJobs ? (content.value === "GPUs in use" ? held(of) : waiting(of)) : of());
    const order = ORDERED[kind], place = (name) => (order ? order.indexOf(name) : parseInt(name, 10)), isBySize = isOfJobs || content.value === LOST;
    found.sort((a, b) => (isBySize ? b.total - a.total : place(a.name) - place(b.name)));
    const colors = new Map(run.legend);
    found.forEach((group, i) => { group.color = (kind === "application" && colors.get(group.name)) || `hsl(${(i * 137.5 + 265) % 360} 45% 55%)`; });
    const shown = found.length > MOST ? [...found.slice(0, MOST - 1), together(found.slice(MOST - 1))] : found;
    stack(shown);
    format.fill("group-note", NOTES[content.value] ?? NOTES[kind] ?? "");
    format.fill("group-legend", ...shown.map(({ name, color, total }) => format.element("li", { style: ["--color", color] }, `${name} `, format.element("small", {}, `${format.number(total / 3600, 1)} h`))));
    if (isOfJobs) table(kind, of);
  }

  // How much of each group there is in each bin, times its length.
  function bins(stretches) {
    const count = Math.max(Math.ceil((run.end - start) / width), 1), groups = new Map();
    for (const [from, to, name, much, amount = (a, b) => b - a] of stretches) {
      const until = Math.min(to, run.end);
      if (!(until > from)) continue;
      if (!groups.has(name)) groups.set(name, { name, total: 0, y: new Float64Array(count) });
      const group = groups.get(name);
      for (let bin = Math.max(Math.floor((from - start) / width), 0); bin < count && start + bin * width < until; bin++) {
        const low = Math.max(from, start + bin * width), high = Math.min(until, start + (bin + 1) * width);
        if (high > low) group.y[bin] += much * amount(low, high);
      }
      group.total += much * amount(from, until);
    }
    return [...groups.values()];
  }

  const together = (rest) => rest.reduce((sum, { total, y }) => ({ ...sum, total: sum.total + total, y: sum.y.map((value, bin) => value + y[bin]) }),
    { name: OTHERS, color: "#8a94a0", total: 0, y: new Float64Array(rest[0].y.length) });

  function stack(shown) {
    const count = shown[0]?.y.length ?? 1, edges = Array.from({ length: count + 1 }, (_, i) => Math.min(start + i * width, run.end));
    let low = new Float64Array(count);
    figure.areas = shown.map(({ name, color, y }) => {
      const mean = y.map((value, bin) => value / (edges[bin + 1] - edges[bin])), high = low.map((value, bin) => value + mean[bin]);
      const each = { x: edges, low, high, color, name, y: mean };
      low = high;
      return each;
    });
    figure.y.end = 1.06 * low.reduce((a, b) => Math.max(a, b), 1);
    figure.draw();
  }

  // Who waits, and who gets: jobs of each group, how long they took and waited, and the GPU time they had.
  function table(kind, of) {
    const groups = new Map();
    for (let job = 0; job < run.numJobs; job++) {
      const name = of(run, job), life = data.endOf(run, job) - run.jobSubmit[job];
      if (!(life >= 0)) continue;
      if (!groups.has(name)) groups.set(name, { name, jobs: 0, life: 0, toFirst: 0, waited: 0, service: 0 });
      const group = groups.get(name);
      group.jobs++;
      group.life += life;
      group.toFirst += run.jobStart[job] < 0 ? life : run.jobStart[job] - run.jobSubmit[job];
      group.waited += data.waited(run, job);
      group.service += run.jobGpuSeconds[job];
    }
    const found = [...groups.values()].sort((a, b) => b.service - a.service), late = [...found].sort((a, b) => b.toFirst / b.jobs - a.toFirst / a.jobs);
    format.fill("group-rows", ...found.slice(0, 100).map((group) => format.element("tr", {},
      format.element("th", { scope: "row" }, group.name), ...[format.number(group.jobs), format.span(group.life / group.jobs), format.span(group.toFirst / group.jobs), format.number(late.indexOf(group) + 1), format.span(group.waited / group.jobs), format.number(group.service / 3600, 1)]
        .map((cell) => format.element("td", {}, cell)))));
    format.fill("group-name", kind);
  }

  const tell = (time) => [...figure.areas].reverse().map((each) => [each.color, each.name, format.inUnit(chart.valueAt(each, time) ?? 0)]);

  return { init, show, tell, figure: () => figure, draw: () => figure.draw(), holds: (element) => figure.host.contains(element) };
})();
