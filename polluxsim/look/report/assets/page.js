// Puts the parts to work: draws the figures, follows the address, the chosen run, the moment and the theme.
"use strict";
polluxReport.page = (() => {
  const { data, format, chart, map, cluster, groups } = polluxReport;
  const STEPS = 2000, PLAY_SECONDS = 30, MOST_EVENTS = 4;
  const byId = (id) => document.getElementById(id);
  const axis = { start: 0, end: 1 }, figures = new Map();
  let all, run, link, playing = null;

  async function start() {
    theme(matchMedia("(prefers-color-scheme: dark)"));
    all = await data.loadCharts();
    Object.assign(axis, { start: all.start, end: all.end });
    distribution("cdf", "jct", "share", "Distribution of completion times", { range: chart.lengthRange, ticks: chart.lengthTicks, say: (time) => `within ${format.span(time)}` });
    fairness();
    applications();
    all.panels.forEach(panel);
    map.init(axis);
    groups.init(axis, all);
    link = polluxReport.timeline.link(byId("timeline"), { axis, draw, tell, pick });
    for (const part of [cluster, polluxReport.table, polluxReport.job, polluxReport.jobs]) part.init();
    listen();
    await choose(0);
    moveTo(Math.min(busiest(), run.end));
    await Promise.all([follow(), polluxReport.jobs.show()]);
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

  // How much longer than alone on an equal share: 1 is fair.
  function fairness() {
    if (!byId("rho")) return;
    const round = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000, 1e6];
    const range = (found) => ({ start: round.findLast((each) => each < Math.min(...found)) ?? 0.001, end: round.find((each) => each > Math.max(...found)) ?? Math.max(...found) });
    const figure = distribution("rho", "rho", "rhoShare", "Distribution of finish-time fairness", { range, say: (rho) => `ρ up to ${format.number(rho, 2)}`,
      ticks: ({ start, end }) => round.filter((each) => each >= start && each <= end).map((each) => [each, String(each)]) });
    figure.marks = [1];
    figure.draw();
  }

  function applications() {
    const names = all.applications.map(({ name }) => name), count = all.runs.length;
    const dots = all.runs.flatMap(({ label, color, spreads }, i) => Object.entries(spreads).map(([name, [mean, low, high, jobs]]) => ({
      y: names.indexOf(name) + (i - (count - 1) / 2) * 0.7 / count, x: mean, low, high, jobs, name, label, color, run: i })));
    const lengths = dots.flatMap((dot) => [dot.low, dot.x, dot.high]).filter((length) => length > 0);
    const x = { ...chart.lengthRange(lengths.length ? lengths : [60]), log: true, ticks: chart.lengthTicks };
    for (const dot of dots) for (const part of ["x", "low", "high"]) dot[part] = Math.max(dot[part], x.start);
    const y = { start: names.length - 0.5, end: -0.5, ticks: () => names.map((name, i) => [i, name.length > 13 ? `${name.slice(0, 12)}…` : name]) };
    const figure = made("by-application", { height: Math.max(300, 46 * names.length + 40), label: "Completion times by application", left: 96, x, y, dots });
    chart.hover(figure, ({ left, top }) => {
      const dot = chart.nearest(figure, left, top);
      return dot && [`${dot.name}, ${format.plural(dot.jobs, "job")}`, [[dot.color, dot.label, ""], ["", "mean", format.span(dot.x)],
        ["", "10–90 %", `${format.span(dot.low)} to ${format.span(dot.high)}`]]];
    });
  }

  function panel({ name, title, unit, top }) {
    const lines = all.runs.map(({ label, end }, i) => {
      const y = all[`${name}${i}`], x = Array.from(y, (_, k) => all.start + k * all.width);
      return { ...looks()[i], label, x: [...x, end], y };
    });
    const most = top ?? lines.reduce((sum, line) => line.y.reduce((a, b) => Math.max(a, b), sum), 1);
    made(`panel-${name}`, { height: name === "gpus" ? 190 : 140, label: `${title} over time`, x: axis, y: { start: 0, end: 1.06 * most, unit }, lines, unit, forks: all.forks, namesForks: name === all.panels[0].name });
  }

  const over = () => all.panels.map(({ name }) => figures.get(`panel-${name}`));
  function draw() { over().forEach((figure) => figure.draw()); groups.draw(); map.paint(); }

  // The box at the crosshair: every run in every figure, and over the map who holds the GPU.
  function tell(time, event) {
    const row = event.target === byId("map") ? map.rowAt(event) : -1;
    if (row >= 0) return [format.clock(time), map.tell(row, time)];
    if (groups.holds(event.target)) return [format.clock(time), groups.tell(time)];
    const more = data.eventsAt(run, time).slice(0, MOST_EVENTS).map((text) => ["", text]);
    const titles = all.runs.length ? [["", "", ...all.panels.map(({ title }) => title)]] : [];
    return [format.clock(time), [...titles, ...all.runs.flatMap(({ label, color }, i) => (over()[0].lines[i].hidden ? []
      : [[color, label, ...over().map((figure) => { const value = chart.valueAt(figure.lines[i], time); return value === undefined ? "–" : format.inUnit(value, figure.unit); })]])), ...more]];
  }

  function pick(time, event) {
    moveTo(Math.min(time, run.end));
    const row = event.target === byId("map") ? map.rowAt(event) : -1;
    if (row >= 0) map.picked(row, time);
  }

  function listen() {
    byId("run")?.addEventListener("change", (event) => choose(Number(event.target.value)));
    byId("time").addEventListener("input", (event) => moveTo(Number(event.target.value)));
    byId("play").addEventListener("click", () => play(playing === null));
    const moves = { in: () => link.zoom(0.5), out: () => link.zoom(2), earlier: () => link.shift(-0.5), later: () => link.shift(0.5), all: () => link.reset() };
    for (const button of document.querySelectorAll("[data-move]")) button.addEventListener("click", moves[button.dataset.move]);
    for (const button of document.querySelectorAll("[data-rows]")) button.addEventListener("click", () => map.move(button.dataset.rows));
    for (const box of document.querySelectorAll(".show-run")) box.addEventListener("change", () => toggle(box));
    byId("find").addEventListener("input", () => find(byId("find").value.trim()));
    window.addEventListener("hashchange", follow);
  }

  // A job by its name stands out wherever it is: in its figures, on the map, in the cluster and in the table.
  function find(name) {
    const job = name ? run.jobNumber.get(name) ?? run.jobs.findIndex((each) => each.toLowerCase().includes(name.toLowerCase())) : -1;
    format.fill("found", !name ? "" : job < 0 ? "no such job" : format.linkTo(run, job));
    for (const figure of [...over(), groups.figure()]) {
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
    format.fill("colours", run.legend.length ? "Colour is the application, shade the job" : "Every job has a colour of its own",
      run.downStart.length ? "; a red tick above a figure is a node that fails" : "");
    strip(number);
    for (const figure of over()) { figure.ticks = [["failure", run.downStart]]; }
    for (const part of [map, cluster, groups, polluxReport.table]) part.show(run);
    byId("find").value = "";
    find("");
    moveTo(Math.min(Number(slider.value), run.end));
  }

  // The whole run in the strip below the figures.
  function strip(number) {
    const { x, y, color } = figures.get("panel-gpus").lines[number], most = figures.get("panel-gpus").y.end;
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
    byId("time").value = String(time);
    byId("time").setAttribute("aria-valuetext", format.clock(time));
    format.fill("time-text", format.clock(time));
    link.mark(time);
    cluster.at(time);
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
      if (figure.lines[number]) figure.lines[number].hidden = hidden;
      for (const dot of figure.dots) if (dot.run === number) dot.hidden = hidden;
      figure.draw();
    }
  }

  // #job/RUN/NAME is the page of a job; everything else is a place in the overview.
  async function follow() {
    const [kind, number, name] = location.hash.slice(1).split("/");
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
      byId(kind || "main")?.scrollIntoView({ behavior: "instant" });
    }
  }

  // The system's colours until someone asks for others; paper is always light.
  function theme(system) {
    const root = document.documentElement, button = byId("theme");
    const paint = (dark) => {
      root.dataset.theme = dark ? "dark" : "light";
      if (run) { map.paint(); cluster.draw(); }
    };
    let asked = null;
    const isDark = () => asked ?? system.matches;
    const set = () => { paint(isDark()); button.textContent = isDark() ? "Light mode" : "Dark mode"; };
    set();
    system.addEventListener("change", set);
    button.addEventListener("click", () => { asked = !isDark(); set(); });
    addEventListener("beforeprint", () => paint(false));
    addEventListener("afterprint", set);
  }

  start().catch((error) => {
    byId("failure").hidden = false;
    byId("failure").textContent = `This report could not be shown: ${error.message ?? error}`;
    throw error;
  });
  return { axis, figures, moveTo };
})();
