// What the cluster and the queue are made of: GPUs in use, jobs that wait or free GPUs over time, one group on the other.
"use strict";
polluxReport.groups = (() => {
  const { format, data, chart } = polluxReport, { overTime, losses } = polluxReport.metrics;
  const MOST = 8, OTHERS = "others", GPUS = overTime.gpus.title, WAITING = "Jobs that wait", WASTED = "Wasted GPU time", LOST = `GPUs lost to ${losses}s`, UNDONE = `GPUs whose training ${/^[aeiou]/.test(losses) ? "an" : "a"} ${losses} undid`, LIMITS = [60, 600, 3600, 21600, 86400];
  const OF_JOBS = {
    application: (run, job) => run.applications[run.jobApplication[job]],
    "GPUs asked for": (run, job) => format.plural(run.jobAsked[job], "GPU"),
    queue: (run, job) => run.queues[job] || "(none)",
    user: (run, job) => run.users[job] || "(none)",
  };
  // What can be stacked, by what; each gives stretches of time: from, to, the group, and how much of it there is.
  const CONTENTS = {
    [GPUS]: { ...OF_JOBS },
    [WAITING]: { ...OF_JOBS, cause: causes, "time they have waited": ages },
    "Free GPUs": { "how many are free on their node": fragments, "whether jobs wait": idle },
    [WASTED]: { cause: wasted },
    [LOST]: { node: lostByNode, cause: lostByCause },
  };
  const ORDERED = { cause: ["between rounds", "no GPUs", "behind others", "restarting"],
    "time they have waited": [...LIMITS.map((limit) => `up to ${format.span(limit)}`), "longer"] };
  const NOTES = {
    cause: "Between rounds: until the next round. No GPUs: fewer were free than the job asks for. Behind others: enough were free, and not for it. Restarting: it holds GPUs and does not train yet.",
    "whether jobs wait": "GPUs that are free while jobs are queued: too few on a node, kept for others, or free only until the next round.",
    [WASTED]: `GPUs of jobs that start or restart, ${UNDONE}, and the share of GPUs that a statistical efficiency below 1 costs.`,
    [LOST]: `GPUs of nodes that are down, and ${UNDONE}. A node counts for the GPU time that its ${losses}s cost.`,
    "how many are free on their node": "Free GPUs in small pieces are of no use to a job that wants many on one node.",
  };
  let stacks = [], run, content, select;

  // A figure for the run on the map, and one for the run beside it, on one axis and one scale.
  function init(axis, all) {
    stacks = ["groups", "groups-beside"].map((id) => {
      const figure = chart.make(document.getElementById(id), { height: 150, label: "The cluster or its queue by group, over time", x: axis, y: { start: 0, end: 1 }, forks: all.forks });
      const each = { figure, run: null, stretches: [] };
      figure.prepare = (pixels) => { if (each.run) stack(each, axis, pixels); };
      return each;
    });
    [content, select] = ["group-of", "group-by"].map((id) => document.getElementById(id));
    content.addEventListener("change", choose);
    select.addEventListener("change", apply);
  }

  function show(next, beside = null) {
    const before = content.value;
    run = next;
    [stacks[0].run, stacks[1].run] = [next, beside];
    document.getElementById("groups-beside-figure").hidden = !beside;
    const lost = stacks.some(({ run: each }) => each && (each.downRow.length || each.lostNode.length));
    format.options(content, Object.keys(CONTENTS).filter((name) => name !== LOST || lost));
    if (before) content.value = before;
    if (!content.value) content.selectedIndex = 0;
    choose();
  }

  function choose() {
    const says = { application: run.applications.length > 1 || !run.jobAsked.some(Boolean), user: run.users.length, queue: run.queues.length, "GPUs asked for": run.jobAsked.some(Boolean) };
    const kinds = Object.keys(CONTENTS[content.value]).filter((kind) => says[kind] ?? true), before = select.value;
    format.options(select, kinds);
    if (kinds.includes(before)) select.value = before;
    apply();
  }

  function* held(run, of) { for (let i = 0; i < run.heldStart.length; i++) yield [run.heldStart[i], run.heldEnd[i], of(run, run.heldJob[i]), run.heldGpus[i]]; }

  function* waits(run) { for (let job = 0; job < run.numJobs; job++) for (const [from, to] of data.waitsOf(run, job)) yield [from, to, job]; }

  function* waiting(run, of) { for (const [from, to, job] of waits(run)) yield [from, to, of(run, job), 1]; }

  function* ages(run) {
    for (const [from, to] of waits(run)) {
      let since = from;
      for (const [i, name] of ORDERED["time they have waited"].entries()) {
        const until = Math.min(to, from + (LIMITS[i] ?? Infinity));
        if (until > since) yield [since, until, name, 1];
        since = until;
      }
    }
  }

  // A wait begins with that for the next round; from then on it is one for GPUs, or behind others.
  function* causes(run) {
    const short = new Map(), free = data.freeGpus(run), isElastic = run.changeGpus.some((gpus, i) => gpus > 0 && gpus !== run.jobAsked[run.changeJob[i]]);
    for (const [from, to, job] of waits(run)) {
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
  function* fragments(run) {
    const free = [...run.gpusPerNode], since = new Float64Array(free.length);
    for (const [time, node, change] of [...data.turnover(run), ...free.map((_, node) => [run.end, node, 0])]) {
      const whole = Math.round(free[node]); // parts of a GPU that jobs share come and go together
      if (whole > 0 && time > since[node]) yield [since[node], time, `${whole} of ${run.gpusPerNode[node]}`, whole];
      since[node] = time;
      free[node] += change;
    }
  }

  // Free GPUs, as long as jobs wait and as long as none does.
  function* idle(run) {
    const queue = polluxReport.curves.of(run, "queue"), changes = [...data.turnover(run), ...queue.times.map((time) => [time, 0, 0])].sort((a, b) => a[0] - b[0]);
    let free = run.numRows, since = 0;
    for (const [time, , change] of [...changes, [run.end, 0, 0]]) {
      const whole = Math.round(free);
      if (whole > 0 && time > since) yield [since, time, queue.at(since) ? "while jobs wait" : "no job waits", whole];
      since = Math.max(time, 0);
      free += change;
    }
  }

  // GPUs that are held and do no useful training. A low efficiency costs a share of those that train and keep it.
  function* wasted(run) {
    const { curves } = polluxReport, away = [], other = [];
    for (let job = 0; job < run.numJobs; job++) for (const [from, to, i] of data.tenuresOf(run, job)) other.push([from, Math.min(from + run.changeDelay[i], to), "starts and restarts", run.changeGpus[i]]);
    for (let i = 0; i < run.lostNode.length; i++) other.push([run.lostStart[i], run.lostEnd[i], "training undone", run.lostGpus[i]]);
    for (const [from, to, , gpus] of other) away.push([from, gpus], [to, -gpus]);
    yield* other;
    if (!run.isAdaptive) return;
    const efficiency = curves.of(run, "efficiency"), gpus = curves.of(run, "gpus"), useless = curves.ofChanges(away, run.end);
    const times = curves.union(efficiency.times, useless.times);
    for (const [i, time] of times.entries()) {
      const until = Math.min(times[i + 1] ?? run.end, run.end), value = efficiency.at(time);
      if (until > time && value < 1) yield [time, until, "low efficiency", Math.max(gpus.at(time) - useless.at(time), 0) * (1 - value)];
    }
  }

  // GPUs that outages and failures cost, by node: those of nodes that are down, and those whose training is undone.
  function* lostGpus(run) {
    for (let i = 0; i < run.downRow.length; i++) yield [run.downStart[i], run.downEnd[i], run.nodeOfRow[run.downRow[i]], run.downRows[i], "node down"];
    for (let i = 0; i < run.lostNode.length; i++) yield [run.lostStart[i], run.lostEnd[i], run.lostNode[i], run.lostGpus[i], "training undone"];
  }
  function* lostByNode(run) { for (const [from, to, node, gpus] of lostGpus(run)) yield [from, to, node < run.gpusPerNode.length ? `node ${node}` : "the job itself", gpus]; }
  function* lostByCause(run) { for (const [from, to, , gpus, cause] of lostGpus(run)) yield [from, to, cause, gpus]; }

  // All stretches of both runs are found once; each window has its own bins. Groups have one colour in both.
  function apply() {
    const kind = select.value, of = CONTENTS[content.value][kind], isOfJobs = kind in OF_JOBS, totals = new Map();
    for (const each of stacks) {
      each.stretches = each.run ? [...(isOfJobs ? (content.value === GPUS ? held(each.run, of) : waiting(each.run, of)) : of(each.run))]
        .map(([from, to, name, much, amount = (a, b) => b - a]) => [from, Math.min(to, each.run.end), name, much, amount]).filter(([from, to]) => to > from) : [];
      each.totals = new Map();
      for (const [from, to, name, much, amount] of each.stretches) { // a run begins with its first submission
        if (to > each.run.start) each.totals.set(name, (each.totals.get(name) ?? 0) + much * amount(Math.max(from, each.run.start), to));
      }
      for (const [name, total] of each.totals) totals.set(name, (totals.get(name) ?? 0) + total);
    }
    const order = content.value === WAITING ? ORDERED[kind] : undefined, place = (name) => (order ? order.indexOf(name) : parseInt(name, 10)), isBySize = isOfJobs || [LOST, WASTED].includes(content.value) || kind === "whether jobs wait";
    const names = [...totals.keys()].sort((a, b) => (isBySize ? totals.get(b) - totals.get(a) : place(a) - place(b))), colors = new Map(run.legend);
    const kept = names.length > MOST ? names.slice(0, MOST - 1) : names;
    const groups = kept.map((name, i) => ({ name, color: (kind === "application" && colors.get(name)) || `hsl(${(i * 137.5 + 265) % 360} 45% 55%)` }));
    if (kept.length < names.length) groups.push({ name: OTHERS, color: "#8a94a0" });
    const placeOf = new Map(names.map((name) => [name, Math.min(kept.indexOf(name) < 0 ? Infinity : kept.indexOf(name), groups.length - 1)]));
    const most = Math.max(...stacks.filter((each) => each.run).map((each) => (content.value === WAITING ? largest(each.stretches) : each.run.numRows)));
    for (const each of stacks) { Object.assign(each, { groups, placeOf }); each.figure.y.end = 1.06 * most; }
    draw();
    const inAll = (each, group) => (group.name === OTHERS && kept.length < names.length ? names.slice(kept.length) : [group.name]).reduce((sum, name) => sum + (each.totals.get(name) ?? 0), 0);
    format.fill("group-note", NOTES[content.value] ?? NOTES[kind] ?? "");
    format.fill("group-legend", ...groups.map((group) => format.element("li", {}, format.swatch(group.color), `${group.name} `,
      format.element("small", {}, stacks.filter((each) => each.run).map((each, _, all) => `${all.length > 1 ? `${each.run.label} ` : ""}${format.number(inAll(each, group) / 3600, 1)} h`).join(" · ")))));
    if (isOfJobs) table(kind, of);
  }

  // How much of each group there is in each bin in sight, one for each pixel.
  function stack(each, axis, pixels) {
    const from = Math.max(axis.start, 0), end = Math.min(axis.end, each.run.end), wide = (axis.end - axis.start) / Math.max(Math.round(pixels), 1);
    const count = Math.max(Math.ceil((end - from) / wide - 1e-9), 0), sums = each.groups.map(() => new Float64Array(count));
    for (const [start, to, name, much, amount] of each.stretches) {
      if (start >= end || to <= from) continue;
      const sum = sums[each.placeOf.get(name)];
      for (let bin = Math.max(Math.floor((start - from) / wide), 0); bin < count && from + bin * wide < to; bin++) {
        const low = Math.max(start, from + bin * wide), high = Math.min(to, from + (bin + 1) * wide, end);
        if (high > low) sum[bin] += much * amount(low, high);
      }
    }
    const edges = Array.from({ length: count + 1 }, (_, i) => Math.min(from + i * wide, end));
    let low = new Float64Array(count);
    each.figure.areas = each.groups.map(({ name, color }, k) => {
      const high = low.map((value, bin) => value + sums[k][bin] / (edges[bin + 1] - edges[bin])), area = { x: edges, low, high, color, name };
      low = high;
      return area;
    });
  }

  // The largest sum of all groups at any time; a wait that is split between two causes counts once.
  function largest(stretches) {
    const changes = stretches.filter(([, , name]) => name !== "behind others").flatMap(([from, to, , much]) => [[from, much], [to, -much]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let now = 0, most = 1;
    for (const [, change] of changes) { now += change; most = Math.max(most, now); }
    return most;
  }

  // What there is of each group at a time, exactly.
  function at(each, time) {
    const sums = each.groups.map(() => 0);
    for (const [from, to, name, much, amount] of each.stretches) if (from <= time && time < to) sums[each.placeOf.get(name)] += much * amount(time, time + 1e-3) / 1e-3;
    return each.groups.map(({ name, color }, k) => [color, name, format.inUnit(Math.round(sums[k] * 1e3) / 1e3, "")]).reverse();
  }

  // The percentile of values, linear between ranks.
  function percentile(values, share) {
    const sorted = Float64Array.from(values).sort(), place = share * (sorted.length - 1), below = Math.floor(place);
    return sorted[below] + (place - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
  }

  // Who waits, and who gets: jobs of each group, how long they took and waited, and the GPU time they had.
  function table(kind, of) {
    const groups = new Map();
    for (let job = 0; job < run.numJobs; job++) {
      const name = of(run, job), life = data.endOf(run, job) - run.jobSubmit[job];
      if (!(life >= 0)) continue;
      if (!groups.has(name)) groups.set(name, { name, jobs: 0, life: 0, toFirst: 0, waited: 0, waits: [], service: 0 });
      const group = groups.get(name);
      group.jobs++;
      group.life += life;
      group.toFirst += run.jobStart[job] < 0 ? life : run.jobStart[job] - run.jobSubmit[job];
      group.waited += data.waited(run, job);
      group.waits.push(data.waited(run, job));
      group.service += run.jobGpuSeconds[job];
    }
    const found = [...groups.values()].sort((a, b) => b.service - a.service), late = [...found].sort((a, b) => b.toFirst / b.jobs - a.toFirst / a.jobs);
    format.fill("group-rows", ...found.slice(0, 100).map((group) => format.element("tr", {},
      format.element("th", { scope: "row" }, group.name), ...[format.number(group.jobs), format.span(group.life / group.jobs), format.span(group.toFirst / group.jobs), format.number(late.indexOf(group) + 1), format.span(group.waited / group.jobs), format.span(percentile(group.waits, 0.9)), format.number(group.service / 3600, 1)]
        .map((cell) => format.element("td", {}, cell)))));
    format.fill("group-name", kind);
  }

  const draw = () => stacks.forEach(({ figure, run: each }) => { if (each) figure.draw(); });
  const shown = (element) => stacks.find((each) => each.run && each.figure.host.contains(element));
  const tell = (time, element) => (time > shown(element).run.end ? [["", `${shown(element).run.label} ended at ${format.clock(shown(element).run.end)}`]] : at(shown(element), time));

  return { init, show, tell, draw, figures: () => stacks.map(({ figure }) => figure), holds: (element) => shown(element) !== undefined };
})();
