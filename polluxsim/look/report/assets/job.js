// The page of one job: facts, its life as figures, when it waited, and every change in words.
"use strict";
polluxReport.job = (() => {
  const { format, data } = polluxReport;
  const FIGURES = ["job-gpus", "job-batch", "job-efficiency", "job-progress"];
  const hour = (seconds) => seconds / 3600;
  let had, done, hours, lines, waits, starts;

  function init(model) {
    had = model("job-had"); done = model("job-done"); hours = model("job-hours");
    [lines, waits, starts] = ["line", "waits", "starts"].map((what) => FIGURES.map((name) => model(`${name}-${what}`)));
  }

  async function show(run, job) {
    const reasons = await data.loadReasons(run.number), changes = [];
    for (let i = run.changeFirst[job]; i < run.changeFirst[job + 1]; i++) changes.push(i);
    const ended = run.jobEnd[job] >= 0, end = ended ? run.jobEnd[job] : run.end;
    const application = run.applications[run.jobApplication[job]], submit = run.jobSubmit[job];
    document.getElementById("job-title").textContent = run.jobs[job];
    document.getElementById("job-line").textContent = `${application} · ${ended ? "completed" : "cut off at the end of the run"}`;
    document.getElementById("job-run").textContent = `in ${run.label}`;
    const stretches = waiting(run, changes, submit, end), waited = stretches.reduce((sum, [a, b]) => sum + b - a, 0);
    format.facts("job-facts", [
      ["JCT", `${ended ? "" : "≥ "}${format.span(end - submit)}`],
      ["submitted at", format.hours(submit)],
      ["first GPU after", run.jobStart[job] < 0 ? "never" : format.span(run.jobStart[job] - submit)],
      ["waited in all", format.span(waited)],
      ["GPU-hours", format.number(run.jobGpuSeconds[job] / 3600, 2)],
      ["restarts", format.number(run.jobRestarts[job])],
    ]);
    draw(run, job, changes, submit, end, stretches);
    tellWaits(run, job, stretches, reasons);
    tellChanges(run, job, changes, reasons);
    step("job-previous", run, job - 1);
    step("job-next", run, job + 1);
  }

  function step(id, run, job) {
    const link = document.getElementById(id), exists = job >= 0 && job < run.numJobs;
    link.hidden = !exists;
    if (exists) link.setAttribute("href", format.jobLink(run, job));
  }

  // Stretches of time without a GPU, from submission on.
  function waiting(run, changes, submit, end) {
    const found = [];
    let since = submit;
    for (const i of changes) {
      const has = run.changeGpus[i] > 0;
      if (has && since !== null) { if (run.changeTime[i] > since) found.push([since, run.changeTime[i]]); since = null; }
      if (!has && since === null) since = run.changeTime[i];
    }
    if (since !== null && since < end) found.push([since, end]);
    return found;
  }

  function draw(run, job, changes, submit, end, stretches) {
    const time = [submit], gpus = [0], batch = [0];
    for (const i of changes) { time.push(run.changeTime[i]); gpus.push(run.changeGpus[i]); batch.push(run.changeBatch[i]); }
    if (time[time.length - 1] < end) { time.push(end); gpus.push(gpus[gpus.length - 1]); batch.push(batch[batch.length - 1]); }
    had.data = { time: time.map(hour), gpus, batch };
    const life = [run.lifeFirst[job], run.lifeFirst[job + 1]];
    done.data = { time: Array.from(run.lifeTime.slice(...life), hour), efficiency: Array.from(run.lifeEfficiency.slice(...life)),
      progress: Array.from(run.lifeProgress.slice(...life), (share) => Math.min(share, 1)) };
    document.getElementById("job-work").hidden = life[0] === life[1];
    document.getElementById("job-note").textContent = run.livesNote;
    const placed = changes.filter((i) => run.changeMoved[i] && run.changeGpus[i]).map((i) => hour(run.changeTime[i]));
    for (const source of starts) source.data = { time: placed };
    for (const source of waits) source.data = { start: stretches.map(([a]) => hour(a)), end: stretches.map(([, b]) => hour(b)) };
    const margin = Math.max((end - submit) * 0.02, 1);
    hours.setv({ start: hour(submit - margin), end: hour(end + margin) });
    for (const { glyph } of lines) glyph.line_color = run.color[job];
  }

  // What the records say of a stretch: how full the cluster was, and who else waited.
  function tellWaits(run, job, stretches, reasons) {
    const items = stretches.map(([start, end]) => {
      const then = data.at(run, start), others = then.waiting.filter((other) => other !== job).length;
      const free = run.numRows - then.gpus;
      return format.element("li", {}, `${format.span(end - start)} from ${format.hours(start)}: at its beginning `,
        `${free > 0 ? `${format.plural(free, "GPU")} of ${format.number(run.numRows)} were free` : `all ${format.number(run.numRows)} GPUs were held`}`,
        ` and ${others ? `${format.plural(others, "other job")} waited too` : "nobody else waited"}.`, told(reasons, job, start, end));
    });
    format.fill("job-waiting", ...(items.length ? items : [format.element("li", {}, "It never waited.")]));
  }

  // What the policy said in a stretch of time, where that is recorded.
  function told(reasons, job, from, to, most = Infinity) {
    const said = data.reasonsWithin(reasons, job, from, to).slice(0, most).map(({ time, text }) => format.element("li", {},
      format.element("small", {}, format.hours(time)), ` ${text}`));
    return said.length ? format.element("ul", { class: "why" }, ...said) : "";
  }

  function tellChanges(run, job, changes, reasons) {
    let gpus = 0, started = false;
    const rows = changes.map((i, place) => {
      const now = run.changeGpus[i], what = words(run, i, gpus, started);
      const until = place + 1 < changes.length ? run.changeTime[changes[place + 1]] : Infinity;
      gpus = now; started = started || now > 0;
      const cells = now ? [now, run.changeNodes[i], run.changeBatch[i], run.changeAccumulation[i]] : ["–", "–", "–", "–"];
      return format.element("tr", {}, format.element("th", { scope: "row" }, format.hours(run.changeTime[i], 3)),
        format.element("td", {}, what, now ? told(reasons, job, run.changeTime[i], until, 1) : ""),
        ...cells.map((cell) => format.element("td", {}, typeof cell === "number" ? format.number(cell) : cell)));
    });
    format.fill("job-changes", ...rows);
  }

  function words(run, change, before, started) {
    const now = run.changeGpus[change];
    if (!now) return run.changeTime[change] === run.jobEnd[run.changeJob[change]] ? "completes" : "loses its GPUs and waits";
    if (!run.changeMoved[change]) return "changes its batch size";
    if (!before) return started ? `restarts on ${format.plural(now, "GPU")}` : `starts on ${format.plural(now, "GPU")}`;
    if (now === before) return "moves";
    return now > before ? `grows by ${format.plural(now - before, "GPU")}` : `shrinks by ${format.plural(before - now, "GPU")}`;
  }

  return { init, show };
})();
