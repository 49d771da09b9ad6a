// The page of one job: facts, its life as figures, when it waited, and every change in words.
"use strict";
polluxReport.job = (() => {
  const { format, data, chart, timeline } = polluxReport, { ofJobs } = polluxReport.metrics;
  const MOST_RUNS = 8;
  let figures, link, axis = { start: 0, end: 1 };

  function init() {
    const made = (name, label, y) => chart.make(document.getElementById(`job-${name}`), { height: 170, label, x: axis, y: { start: 0, end: 1, ...y }, namesForks: name === "gpus" });
    figures = { gpus: made("gpus", "GPUs of the job", {}), batch: made("batch", "Batch size of the job", {}),
      efficiency: made("efficiency", "Efficiency of the job", { unit: "%" }), progress: made("progress", "Progress of the job", { unit: "%" }) };
    link = timeline.link(document.getElementById("life"), { axis, draw: drawAll, pick: () => {}, tell: (time) => [format.clock(time),
      Object.entries(figures).flatMap(([name, { lines, y }]) => lines.map((line) => [line.color, line.label ?? name, chart.valueAt(line, time), y.unit]))
        .filter(([, , value]) => value !== undefined && !Number.isNaN(value)).map(([color, name, value, unit]) => [color, name, format.inUnit(value, unit)])] });
  }
  const drawAll = () => Object.values(figures).forEach((figure) => figure.draw());

  // The completion time of a job, or its age at its end if it is not complete.
  function lifeOf(run, job) {
    if (!data.wasSubmitted(run, job)) return "–";
    const life = format.span(Math.max(data.endOf(run, job) - run.jobSubmit[job], 0));
    return data.isComplete(run, job) ? life : `≥ ${life}`;
  }

  // `runs` gives all runs, so that the job is seen under each of them.
  async function show(run, job, runs, looks) {
    const reasons = await data.loadReasons(run.number), changes = data.changesOf(run, job);
    const others = runs.length <= MOST_RUNS ? (await Promise.all(runs.map(data.load))).filter((other) => other !== run) : [];
    const status = data.statusOf(run, job), submit = run.jobSubmit[job];
    const application = run.applications[run.jobApplication[job]], user = run.users[job];
    format.fill("job-title", run.jobs[job]);
    format.fill("job-line", [application, user, status === "cut off" ? "cut off at the end of the run" : status].filter(Boolean).join(" · "));
    format.fill("job-run", `in ${run.label}`);
    const stretches = data.waitsOf(run, job);
    format.facts("job-facts", [
      [ofJobs.jct.title, lifeOf(run, job)],
      ["submitted at", Number.isFinite(submit) ? format.clock(submit) : "never"],
      [ofJobs.queueing_delay.title, run.jobStart[job] < 0 ? "never" : format.span(run.jobStart[job] - submit)],
      [ofJobs.waiting_time.title, data.wasSubmitted(run, job) ? format.span(data.waited(run, job)) : "–"],
      [format.heading(ofJobs.gpu_hours), format.number(run.jobGpuSeconds[job] / 3600, 2)],
      [ofJobs.restarts.title, format.number(run.jobRestarts[job])],
      ...(run.jobFailures[job] ? [[ofJobs.failures.title, format.number(run.jobFailures[job])], [ofJobs.lost_time.title, format.span(run.jobLost[job])]] : []),
      ...(run.jobFairness[job] > 0 ? [[ofJobs.fairness.title, format.number(run.jobFairness[job], 2)]] : []),
    ]);
    const twins = others.map((other) => [other, other.jobNumber.get(run.jobs[job])])
      .filter(([other, twin]) => twin !== undefined && other.jobSubmit[twin] === submit);
    draw(run, job, changes, stretches, twins, looks);
    tellTwins(run, job, twins);
    tellWaits(run, job, stretches, reasons);
    tellChanges(run, job, changes, reasons);
    tellShared(run, job);
    step("job-previous", run, job - 1);
    step("job-next", run, job + 1);
  }

  function step(id, run, job) {
    const link = document.getElementById(id), exists = job >= 0 && job < run.numJobs;
    link.hidden = !exists;
    if (exists) link.setAttribute("href", format.jobLink(run, job));
  }

  // GPUs or batch sizes as a step line from submission to the end.
  function steps(run, job, column) {
    const x = [run.jobSubmit[job]], y = [0];
    for (const i of data.changesOf(run, job)) { x.push(run.changeTime[i]); y.push(column[i]); }
    return { x: [...x, Math.max(data.endOf(run, job), x[x.length - 1])], y };
  }

  function draw(run, job, changes, stretches, twins, looks) {
    const life = [run.lifeFirst[job], run.lifeFirst[job + 1]], time = run.lifeTime.slice(...life), end = data.endOf(run, job);
    const look = looks[run.number], one = twins.length ? run.label : "GPUs";
    figures.gpus.lines = [...twins.map(([other, twin]) => ({ ...steps(other, twin, other.changeGpus), ...looks[other.number], label: other.label })),
      { ...steps(run, job, run.changeGpus), ...look, label: one }];
    figures.batch.lines = [{ ...steps(run, job, run.changeBatch), ...look, dash: [], label: "batch size" }];
    figures.efficiency.lines = [{ x: [...time, end], y: run.lifeEfficiency.slice(...life), ...look, dash: [] }];
    figures.progress.lines = [{ x: time, y: run.lifeProgress.slice(...life).map((share) => Math.min(share, 1)), ...look, dash: [] }];
    document.getElementById("job-work").hidden = life[0] === life[1];
    format.fill("job-note", run.livesNote);
    for (const figure of Object.values(figures)) {
      figure.strips = stretches;
      figure.forks = [run, ...twins.map(([other]) => other)].flatMap(({ fork }) => (fork ? [fork] : []));
      figure.ticks = [["checkpoint", data.checkpointsOf(run, job)]];
    }
    figures.gpus.ticks.push(["restart", changes.filter((i) => run.changeMoved[i] && run.changeGpus[i]).map((i) => run.changeTime[i])]);
    format.fill("life-legend", ...(twins.length ? [run, ...twins.map(([other]) => other)] : []).map((each) => format.element("li", {}, format.swatch(looks[each.number].color), each.label)));
    for (const { y, lines } of [figures.gpus, figures.batch]) y.end = 1.06 * lines.reduce((most, line) => line.y.reduce((a, b) => Math.max(a, b), most), 1);
    const last = twins.reduce((most, [other, twin]) => Math.max(most, data.endOf(other, twin)), end), submit = run.jobSubmit[job];
    const margin = Math.max((last - submit) * 0.02, 1);
    link.span(submit - margin, last + margin);
    drawAll();
  }

  // The same job in the other runs.
  function tellTwins(run, job, twins) {
    document.getElementById("twins").hidden = !twins.length;
    format.fill("job-twins", ...[[run, job], ...twins].map(([other, twin]) => format.element("tr", {},
      format.element("th", { scope: "row" }, other === run ? other.label : format.linkTo(other, twin, {}, other.label)),
      ...[lifeOf(other, twin),
        format.span(data.waited(other, twin)), format.number(other.jobRestarts[twin]),
        format.number(other.jobGpuSeconds[twin] / 3600, 2)].map((cell) => format.element("td", {}, cell)))));
  }

  // What the records say of a stretch: how full the cluster was, and who else waited.
  function tellWaits(run, job, stretches, reasons) {
    const items = stretches.map(([start, end]) => {
      const then = data.at(run, start), others = then.waiting.filter((other) => other !== job).length, free = then.capacity - then.gpus;
      const next = run.roundTime[data.lastUpTo(run.roundTime, start) + 1];
      // The reason of a rejection has the time at which the job ends.
      const isRejected = data.statusOf(run, job) === "rejected" && end === data.endOf(run, job);
      const said = told(reasons, job, start, isRejected ? Infinity : end), between = !said && run.roundTime.indexOf(start) < 0 && (next === undefined || next >= end);
      const change = data.changeAt(run, job, start), loss = change >= 0 && run.changeTime[change] === start ? run.losses[change] : undefined;
      return format.element("li", {}, `${format.span(end - start)} from ${format.clock(start)}: `, loss ? `it ${loss}. ` : "", between
        ? `${loss ? "This was" : start === run.jobSubmit[job] ? "It was submitted" : "It lost them"} between two rounds${next === undefined ? "" : `; the next one was at ${format.clock(next)}`}.`
        : `${loss ? "A" : "a"}t its beginning ${free > 0 ? `${format.plural(free, "GPU")} of ${format.number(then.capacity)} ${free === 1 ? "was" : "were"} free`
          : `all ${format.number(then.capacity)} GPUs were held`} and ${others ? `${format.plural(others, "other job")} waited too` : "nobody else waited"}.`, said);
    });
    format.list("job-waiting", items, data.wasSubmitted(run, job) ? "It never waited." : "The run ended before its submission.");
  }

  // What the policy said in a stretch of time, where that is recorded.
  function told(reasons, job, from, to, most = Infinity) {
    const said = data.reasonsWithin(reasons, job, from, to).slice(0, most).map(({ time, text }) => format.element("li", {},
      format.element("small", {}, format.clock(time)), ` ${text}`));
    return said.length ? format.element("ul", { class: "why" }, ...said) : "";
  }

  function tellChanges(run, job, changes, reasons) {
    let gpus = 0, started = false;
    const rows = changes.map((i, place) => {
      const now = run.changeGpus[i], what = words(run, i, gpus, started) + (run.changesByPolicy.includes(i) ? ", at a batch size that the policy chose" : "");
      const until = place + 1 < changes.length ? run.changeTime[changes[place + 1]] : Infinity;
      gpus = now; started = started || now > 0;
      const cells = now ? [now, run.changeNodes[i], run.changeBatch[i], run.changeAccumulation[i]] : ["–", "–", "–", "–"];
      return format.element("tr", {}, format.element("th", { scope: "row" }, format.clock(run.changeTime[i])),
        format.element("td", {}, what, now ? told(reasons, job, run.changeTime[i], until, 1) : ""),
        ...cells.map((cell) => format.element("td", {}, typeof cell === "number" ? format.number(cell) : cell)));
    });
    const { fork } = run;
    if (fork && fork.time >= run.jobSubmit[job] && fork.time < data.endOf(run, job)) {
      const before = changes.filter((i) => run.changeTime[i] < fork.time).length;
      rows.splice(before, 0, format.element("tr", {}, format.element("th", { scope: "row" }, format.clock(fork.time)), format.element("td", {}, fork.text), ...["–", "–", "–", "–"].map((cell) => format.element("td", {}, cell))));
    }
    format.fill("job-changes", ...rows);
  }

  // How fast it was beside whom, where jobs share GPUs.
  function tellShared(run, job) {
    const stretches = data.sharedOf(run, job);
    document.getElementById("shared").hidden = !stretches.length;
    format.fill("job-shared", ...stretches.map(([start, end, speed, others]) => format.element("li", {},
      `${format.clock(start)} to ${format.clock(end)}: ${format.percent(speed)} of its speed alone, `,
      ...(others.size ? ["beside ", ...[...others].flatMap((other, i) => [i ? ", " : "", format.linkTo(run, other)])] : ["with nobody beside it"]), ".")));
  }

  function words(run, change, before, started) {
    const now = run.changeGpus[change];
    if (!now) return run.changeTime[change] === run.jobEnd[run.changeJob[change]] ? ended(run, run.changeJob[change]) : run.losses[change] ?? "loses its GPUs and waits";
    if (!run.changeMoved[change]) return "changes its batch size";
    if (!before) return started ? `restarts on ${format.plural(now, "GPU")}` : `starts on ${format.plural(now, "GPU")}`;
    if (now === before) return "moves";
    return now > before ? `grows by ${format.plural(now - before, "GPU")}` : `shrinks by ${format.plural(before - now, "GPU")}`;
  }

  const ended = (run, job) => (data.isComplete(run, job) ? "completes" : `ends: ${data.statusOf(run, job)}`);

  return { init, show, figures: () => figures };
})();
