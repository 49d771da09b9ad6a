// Puts the parts to work: draws the figures, follows the address, the chosen run, the moment and the theme.
"use strict";
polluxReport.page = (() => {
  const { data, format, chart, curves, map, cluster, groups } = polluxReport;
  const STEPS = 2000, PLAY_SECONDS = 30, MOST_EVENTS = 4, STRIP_POINTS = 400, STACKED = 300, REMEMBER_AFTER = 250;
  const byId = (id) => document.getElementById(id);
  const axis = { start: 0, end: 1 }, figures = new Map();
  let all, run, beside = null, link, playing = null, moment = 0, difference = false, isReady = false;

  async function start() {
    theme(matchMedia("(prefers-color-scheme: dark)"));
    all = await data.loadCharts();
    Object.assign(axis, { start: all.start, end: all.end });
    distribution("cdf", "jct", "share", "Distribution of completion times", { range: chart.lengthRange, ticks: chart.lengthTicks, say: (time) => `within ${format.span(time)}` });
    fairness();
    spreads("by-application", all.applications.map(({ name }) => name), ({ spreads: found }) => found, { label: "Completion times by application" });
    spreads("size-wait", all.sizes, ({ waits }) => waits, { label: "Waiting time by GPUs asked for" });
    spreads("size-slowdown", all.sizes, ({ slowdowns }) => slowdowns, { label: "Slowdown by GPUs asked for", isTime: false, middle: "median" });
    const runs = await Promise.all(all.runs.map((_, number) => data.load(number)));
    all.panels.forEach((each) => panel(each, runs));
    map.init(axis);
    map.beside.init(axis);
    groups.init(axis, all);
    link = polluxReport.timeline.link(byId("timeline"), { axis, draw, tell, pick, seen: remember });
    polluxReport.saving.init({ figures, map });
    for (const part of [cluster, polluxReport.table, polluxReport.job, polluxReport.jobs]) part.init();
    listen();
    watchEdges();
    await choose(0);
    moveTo(Math.min(busiest(), run.end));
    await Promise.all([follow(), polluxReport.jobs.show()]);
    isReady = true;
    document.documentElement.dataset.ready = "true";
    performance.mark("ready");
  }

  const looks = () => all.runs.map(({ color, dash }) => ({ color, dash }));
  const made = (id, options) => { const figure = chart.make(byId(id), options); figures.set(id, figure); figure.draw(); return figure; };

  // Jobs that were cut off keep a line below 1.
  function distribution(id, values, shares, label, { range, ticks, say }) {
    const lines = looks().map((look, i) => ({ ...look, label: all.runs[i].label, x: all[`${values}${i}`], y: all[`${shares}${i}`] }));
    const ends = lines.flatMap(({ x }) => [x[0], x[x.length - 1]]).filter((value) => value > 0);
    const x = { ...range(ends.length ? ends : [60]), log: true, ticks };
    for (const line of lines) if (line.y.length) { line.x = [x.start, ...line.x, x.end]; line.y = [0, ...line.y]; }
    const figure = made(id, { height: 300, label, x, y: { start: 0, end: 1.02, unit: "%" }, lines });
    chart.hover(figure, ({ x: value, inside }) => inside && [say(value),
      lines.filter((line) => !line.hidden).map((line) => [line.color, line.label, format.percent(chart.valueAt(line, value) ?? 0)])]);
    return figure;
  }

  const ROUND = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000, 1e6];
  const roundRange = (found) => ({ start: ROUND.findLast((each) => each < Math.min(...found)) ?? 0.001, end: ROUND.find((each) => each > Math.max(...found)) ?? Math.max(...found) });
  const roundTicks = ({ start, end }) => ROUND.filter((each) => each >= start && each <= end).map((each) => [each, String(each)]);

  // How much longer than alone on an equal share: 1 is fair.
  function fairness() {
    if (!byId("rho")) return;
    const figure = distribution("rho", "rho", "rhoShare", "Distribution of finish-time fairness", { range: roundRange, say: (rho) => `ρ up to ${format.number(rho, 2)}`, ticks: roundTicks });
    figure.marks = [1];
    figure.draw();
  }

  // The mean or median of jobs in groups and their middle 80 %, a dot for each run. Lengths of time have an axis of time.
  function spreads(id, names, of, { label, isTime = true, middle = "mean" }) {
    if (!byId(id)) return;
    const count = all.runs.length, say = isTime ? format.span : (value) => format.number(value, 2);
    const dots = all.runs.flatMap((run, i) => Object.entries(of(run)).map(([name, [value, low, high, jobs]]) => ({
      y: names.indexOf(name) + (i - (count - 1) / 2) * 0.7 / count, x: value, low, high, jobs, name, label: run.label, color: run.color, run: i })));
    const values = dots.flatMap((dot) => [dot.low, dot.x, dot.high]).filter((value) => value > 0);
    const x = isTime ? { ...chart.lengthRange(values.length ? values : [60]), log: true, ticks: chart.lengthTicks } : { ...roundRange(values.length ? values : [1]), log: true, ticks: roundTicks };
    for (const dot of dots) for (const part of ["x", "low", "high"]) dot[part] = Math.max(dot[part], x.start);
    const y = { start: names.length - 0.5, end: -0.5, ticks: () => names.map((name, i) => [i, name.length > 13 ? `${name.slice(0, 12)}…` : name]) };
    const figure = made(id, { height: Math.max(300, 46 * names.length + 40), label, left: 96, x, y, dots });
    chart.hover(figure, ({ left, top }) => {
      const dot = chart.nearest(figure, left, top);
      return dot && [`${dot.name}, ${format.plural(dot.jobs, "job")}`, [[dot.color, dot.label, ""], ["", middle, say(dot.x)], ["", "10–90 %", `${say(dot.low)} to ${say(dot.high)}`]]];
    });
  }

  function panel({ name, title, unit, top }, runs) {
    const lines = runs.map((each, i) => ({ ...looks()[i], label: all.runs[i].label, curve: curves.of(each, name) }));
    const most = top ?? lines.reduce((sum, { curve }) => Math.max(sum, curve.most), 1);
    made(`panel-${name}`, { height: name === "gpus" ? 190 : 140, label: `${title} over time`, x: axis, y: { start: 0, end: 1.06 * most, unit }, lines, unit, forks: all.forks, namesForks: name === all.panels[0].name });
  }

  const over = () => all.panels.map(({ name }) => figures.get(`panel-${name}`));
  function draw() { over().forEach((figure) => figure.draw()); groups.draw(); map.paint(); map.beside.paint(); }

  // The panels show every run, or by how much the run below differs from the run on the map.
  function differ() {
    const isShown = difference && beside !== null && beside !== run;
    for (const figure of over()) {
      figure.all ??= { lines: figure.lines, end: figure.y.end };
      const [a, b] = isShown ? [beside, run].map(({ number }) => figure.all.lines[number]) : [];
      figure.lines = isShown ? [{ ...looks()[beside.number], label: `${a.label} minus ${b.label}`, curve: curves.difference(a.curve, b.curve) }] : figure.all.lines;
      const most = isShown ? 1.06 * (figure.lines[0].curve.most || 1) : figure.all.end;
      Object.assign(figure.y, { start: isShown ? -most : 0, end: most });
      figure.host.closest("figure").querySelector(".minus").textContent = isShown ? `: ${a.label} minus ${b.label}` : "";
      figure.draw();
    }
    if (byId("difference")) byId("difference").setAttribute("aria-pressed", String(isShown));
  }

  // The box at the crosshair: every run in every figure, and over the map who holds the GPU.
  function tell(time, event) {
    const hovered = [map, map.beside].find((each) => each.canvas() === event.target), row = hovered ? hovered.rowAt(event) : -1;
    if (row >= 0) return [format.clock(time), hovered.tell(row, time)];
    if (groups.holds(event.target)) return [format.clock(time), groups.tell(time, event.target)];
    const more = data.eventsAt(run, time).slice(0, MOST_EVENTS).map((text) => ["", all.runs.length > 1 ? `${run.label}: ${text}` : text]);
    const titles = all.runs.length ? [["", "", ...all.panels.map(({ title }) => title)]] : [];
    return [format.clock(time), [...titles, ...over()[0].lines.flatMap(({ label, color, hidden }, i) => (hidden ? []
      : [[color, label, ...over().map((figure) => { const value = chart.valueAt(figure.lines[i], time); return value === undefined ? "–" : format.inUnit(value, figure.unit); })]])), ...more]];
  }

  function pick(time, event) {
    moveTo(Math.min(time, run.end));
    const picked = [map, map.beside].find((each) => each.canvas() === event.target), row = picked ? picked.rowAt(event) : -1;
    if (row >= 0) picked.picked(row, time);
  }

  // Arrows on the map: up and down for a row, left and right for a moment.
  function walk(event) {
    const [rows, share] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -0.01], ArrowRight: [0, 0.01], Enter: [0, 0] }[event.key] ?? [];
    if (rows === undefined) return;
    event.preventDefault();
    moveTo(Math.min(Math.max(moment + share * (axis.end - axis.start), all.start), run.end));
    map.pointAt(rows, moment);
  }

  function listen() {
    byId("run")?.addEventListener("change", (event) => choose(Number(event.target.value)));
    byId("beside")?.addEventListener("change", (event) => place(event.target.value));
    byId("difference")?.addEventListener("click", () => { difference = !difference; differ(); });
    byId("map").addEventListener("keydown", walk);
    byId("map").addEventListener("blur", () => map.paint());
    byId("time").addEventListener("input", (event) => moveTo(Number(event.target.value)));
    byId("play").addEventListener("click", () => play(playing === null));
    const moves = { in: () => link.zoom(0.5), out: () => link.zoom(2), earlier: () => link.shift(-0.5), later: () => link.shift(0.5), all: () => link.reset() };
    for (const button of document.querySelectorAll("[data-move]")) button.addEventListener("click", moves[button.dataset.move]);
    for (const button of document.querySelectorAll("[data-rows]")) button.addEventListener("click", () => map.move(button.dataset.rows));
    for (const box of document.querySelectorAll(".show-run")) box.addEventListener("change", () => toggle(box));
    byId("find").addEventListener("input", () => find(byId("find").value.trim()));
    byId("find").addEventListener("change", () => { const job = jobNamed(byId("find").value.trim()); if (job >= 0) showLife(job); });
    window.addEventListener("hashchange", follow);
  }

  // A job by its name stands out wherever it is: in its figures, on the map, in the cluster and in the table.
  const jobNamed = (name) => (name ? run.jobNumber.get(name) ?? run.jobs.findIndex((each) => each.toLowerCase().includes(name.toLowerCase())) : -1);

  // The axis of time holds a job's life, and the map is in sight.
  function showLife(job) {
    const from = run.jobSubmit[job], to = data.endOf(run, job), margin = 0.05 * Math.max(to - from, 60);
    if (!Number.isFinite(from)) return;
    link.look(from - margin, to + margin);
    byId("timeline").scrollIntoView({ block: "end", behavior: "instant" });
  }

  function find(name) {
    const job = jobNamed(name);
    format.fill("found", !name ? "" : job < 0 ? "no such job" : format.linkTo(run, job));
    for (const figure of [...over(), ...groups.figures()]) {
      figure.strips = job < 0 ? [] : data.waitsOf(run, job);
      figure.marks = job < 0 ? [] : [run.jobSubmit[job], data.endOf(run, job)];
      figure.draw();
    }
    for (const part of [map, cluster, polluxReport.table, polluxReport.jobs]) part.find(job, run);
  }

  // The run that everything below the figures shows.
  async function choose(number) {
    run = await data.load(number);
    if (byId("run")) byId("run").value = String(number);
    const slider = byId("time");
    slider.min = String(all.start);
    slider.max = String(run.end);
    slider.step = String(Math.max((run.end - all.start) / STEPS, 1));
    format.fill("colours", run.legend.length ? "Colour is the application, shade the job" : "Neighbouring jobs differ in colour, jobs far apart may look alike",
      run.downStart.length ? "; a red tick above a figure is a node that goes down" : "");
    strip(number);
    for (const figure of over()) { figure.ticks = [["failure", run.downStart]]; }
    for (const part of [cluster, polluxReport.table]) part.show(run);
    if (beside === null && byId("beside")?.value) beside = await data.load(Number(byId("beside").value));
    arrange();
    byId("find").value = "";
    find("");
    moveTo(Math.min(moment, run.end));
  }

  // The run below the run on the map, on the same axis; "" for none.
  async function place(number) {
    beside = number === "" ? null : await data.load(Number(number));
    arrange();
    remember();
  }

  function arrange() {
    const other = beside === run ? null : beside;
    byId("map-beside-figure").hidden = !other;
    for (const text of document.querySelectorAll(".of-run")) text.textContent = other ? run.label : "";
    for (const text of document.querySelectorAll(".of-beside")) text.textContent = other?.label ?? "";
    if (byId("difference")) byId("difference").disabled = !other;
    map.show(run, other ? STACKED : undefined);
    map.beside.show(other, STACKED);
    groups.show(run, other);
    differ();
  }

  // The address keeps the runs, the moment and the window, once nothing has changed for a moment.
  // An address that is not followed yet stays: the event of a link can come after the timer.
  let waiting = 0, followed = "";
  function remember() {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (!isReady || byId("overview").hidden || location.hash !== followed) return;
      const parts = [run.number, byId("beside")?.value ?? "", Math.round(moment), axis.start.toFixed(1), axis.end.toFixed(1)];
      history.replaceState(null, "", `#view/${parts.join("/")}`);
      followed = location.hash;
    }, REMEMBER_AFTER);
  }

  async function recall([number, below, then, from, to]) {
    if (!byId(`run-${number}`)) return;
    if (byId("beside") && (below === "" || byId(`run-${below}`))) { byId("beside").value = below; beside = below === "" ? null : await data.load(Number(below)); }
    await choose(Number(number));
    if (Number(to) > Number(from)) link.look(Number(from), Number(to));
    if (Number.isFinite(Number(then))) moveTo(Math.min(Math.max(Number(then), all.start), run.end));
  }

  // The whole run in the strip below the figures.
  function strip(number) {
    const figure = figures.get("panel-gpus"), { curve, color } = (figure.all ?? figure).lines[number], most = figure.all?.end ?? figure.y.end;
    const { x, y } = curves.seen(curve, all.start, all.end, STRIP_POINTS);
    const points = Array.from(y, (value, i) => `${x[i]},${100 - 100 * value / most} ${x[i + 1]},${100 - 100 * value / most}`);
    const shape = document.querySelector(".brush polygon");
    shape.setAttribute("points", `${all.start},100 ${points.join(" ")} ${x[x.length - 1]},100`);
    shape.setAttribute("style", `fill: ${color}`);
    shape.ownerSVGElement.setAttribute("viewBox", `${all.start} 0 ${all.end - all.start} 100`);
  }

  // When most jobs are active: a moment worth opening with.
  function busiest() {
    let best = 0, most = -1, active = 0;
    const events = [];
    for (let job = 0; job < run.numJobs; job++) {
      if (Number.isFinite(run.jobSubmit[job])) events.push([run.jobSubmit[job], 1], [data.endOf(run, job), -1]);
    }
    events.sort((a, b) => a[0] - b[0]);
    for (const [time, change] of events) { active += change; if (active > most) { most = active; best = time; } }
    return best;
  }

  function moveTo(time) {
    moment = time;
    byId("time").value = String(time);
    byId("time").setAttribute("aria-valuetext", format.clock(time));
    format.fill("time-text", format.clock(time));
    link.mark(time);
    cluster.at(time);
    remember();
  }

  function play(on) {
    cancelAnimationFrame(playing);
    playing = null;
    format.fill("play", on ? "Pause" : "Play");
    byId("play").setAttribute("aria-pressed", String(on));
    if (!on) return;
    let before = performance.now(), time = Number(byId("time").value);
    if (time >= run.end) time = all.start;
    const tick = (now) => {
      time += (now - before) / 1000 * (run.end - all.start) / PLAY_SECONDS;
      before = now;
      moveTo(Math.min(time, run.end));
      if (time >= run.end) play(false); else playing = requestAnimationFrame(tick);
    };
    playing = requestAnimationFrame(tick);
  }

  function toggle(box) {
    const number = Number(box.value), hidden = !box.checked;
    for (const figure of figures.values()) {
      const { lines } = figure.all ?? figure;
      if (lines[number]) lines[number].hidden = hidden;
      for (const dot of figure.dots) if (dot.run === number) dot.hidden = hidden;
      figure.draw();
    }
  }

  // #job/RUN/NAME is the page of a job; everything else is a place in the overview.
  async function follow() {
    followed = location.hash;
    const [kind, number, name, ...rest] = location.hash.slice(1).split("/");
    if (kind === "view") await recall([number, name, ...rest]);
    const isJob = kind === "job" && byId(`run-${number}`) !== null;
    if (isJob && Number(number) !== run?.number) await choose(Number(number));
    const job = isJob ? run.jobNumber.get(decodeURIComponent(name)) : undefined;
    const wasJob = byId("overview").hidden;
    byId("overview").hidden = job !== undefined;
    byId("job").hidden = job === undefined;
    if (job !== undefined) {
      play(false);
      await polluxReport.job.show(run, job, [...all.runs.keys()], looks());
      scrollTo({ top: 0, behavior: "instant" });
      byId("job-title").focus({ preventScroll: true });
    } else if (wasJob) {
      byId(kind === "view" ? "occupancy" : kind || "main")?.scrollIntoView({ behavior: "instant" });
    }
  }

  // Everything is drawn for the width that it has now.
  function fit() {
    if (!run) return;
    if (!byId("job").hidden) { for (const figure of Object.values(polluxReport.job.figures())) figure.draw(); return; }
    figures.forEach((figure) => figure.draw());
    draw();
    cluster.fit();
    if (byId("versus")) polluxReport.jobs.draw();
  }

  // A table that goes on beyond its right edge says so.
  function watchEdges() {
    const mark = (host) => host.classList.toggle("more", host.scrollLeft + host.clientWidth < host.scrollWidth - 2);
    const sizes = new ResizeObserver((found) => found.forEach(({ target }) => mark(target.closest(".scroll"))));
    for (const host of document.querySelectorAll(".scroll")) {
      host.addEventListener("scroll", () => mark(host), { passive: true });
      sizes.observe(host);
      for (const table of host.querySelectorAll("table")) sizes.observe(table);
    }
  }

  // The system's colours until someone asks for others; paper is always light.
  function theme(system) {
    const root = document.documentElement, button = byId("theme");
    const paint = (dark) => {
      root.dataset.theme = dark ? "dark" : "light";
      if (run) { map.paint(); map.beside.paint(); cluster.draw(); }
    };
    let asked = null;
    const isDark = () => asked ?? system.matches;
    const set = () => { paint(isDark()); button.textContent = isDark() ? "Light mode" : "Dark mode"; };
    set();
    system.addEventListener("change", set);
    button.addEventListener("click", () => { asked = !isDark(); set(); });
    addEventListener("beforeprint", () => { root.classList.add("paper"); paint(false); fit(); });
    addEventListener("afterprint", () => { root.classList.remove("paper"); set(); fit(); });
  }

  start().catch((error) => {
    byId("failure").hidden = false;
    byId("failure").textContent = `This report could not be shown: ${error.message ?? error}`;
    throw error;
  });
  return { axis, figures, moveTo, look: (from, to) => link.look(from, to) };
})();
