// Jobs of one run against the same jobs of another: a dot each, and who gained and who lost most.
"use strict";
polluxReport.jobs = (() => {
  const { format, data, chart } = polluxReport;
  const MOST_DOTS = 3000, MOST_NAMED = 6;
  let plot, pair = null, box;

  const jct = (run, job) => data.endOf(run, job) - run.jobSubmit[job];

  function init() {
    box = document.getElementById("versus");
    if (!box) return;
    plot = chart.make(document.getElementById("versus-chart"), { height: 380, label: "Completion times of jobs in two runs",
      x: { start: 1, end: 10, log: true, ticks: chart.lengthTicks }, y: { start: 1, end: 10, log: true, ticks: chart.lengthTicks }, diagonal: true });
    const at = ({ left, top }) => chart.nearest(plot, left, top);
    chart.hover(plot, (place) => (at(place) ? told(at(place)) : null), (place) => { if (at(place)) location.hash = format.jobLink(pair[0], at(place).job); });
    for (const id of ["versus-a", "versus-b"]) document.getElementById(id).addEventListener("change", show);
  }

  function told({ job, other }) {
    const [a, b] = pair;
    return [`${a.jobs[job]} (${a.applications[a.jobApplication[job]]})`, [["", a.label, format.span(jct(a, job))], ["", b.label, format.span(jct(b, other))]]];
  }

  async function show() {
    if (!box) return;
    const [a, b] = pair = await Promise.all(["versus-a", "versus-b"].map((id) => data.load(Number(document.getElementById(id).value))));
    const both = [];
    for (let job = 0; job < a.numJobs; job++) {
      const other = b.jobNumber.get(a.jobs[job]);
      const isSame = other !== undefined && a.jobSubmit[job] === b.jobSubmit[other];
      if (isSame && data.isComplete(a, job) && data.isComplete(b, other)) both.push({ job, other, x: jct(a, job), y: jct(b, other) });
    }
    format.fill("versus-note", both.length
      ? `${format.plural(both.length, "job")} complete in both runs. Below the line: shorter in ${b.label}.`
      : "These runs have no job in common that is complete in both.");
    const step = Math.ceil(both.length / MOST_DOTS);
    plot.dots = both.filter((_, i) => i % step === 0).map((each) => ({ ...each, x: Math.max(each.x, 0.1), y: Math.max(each.y, 0.1), color: a.color[each.job], size: 3.5 }));
    document.getElementById("versus-jobs").hidden = !both.length;
    for (const axis of [plot.x, plot.y]) Object.assign(axis, chart.lengthRange(plot.dots.flatMap(({ x, y }) => [x, y])));
    plot.draw();
    both.sort((p, q) => (p.y - p.x) - (q.y - q.x));
    list("versus-winners", both.filter(({ x, y }) => y < x).slice(0, MOST_NAMED));
    list("versus-losers", both.filter(({ x, y }) => y > x).slice(-MOST_NAMED).reverse());
  }

  // How much sooner or later, and what of it is waiting, restarting or running.
  function list(id, found) {
    const [a, b] = pair;
    const items = found.map(({ job, other, x, y }) => {
      const parts = [["waiting", data.waited(b, other) - data.waited(a, job)], ["restarting", b.jobRestartTime[other] - a.jobRestartTime[job]]];
      parts.push(["training", y - x - parts[0][1] - parts[1][1]]);
      const words = parts.filter(([, seconds]) => Math.abs(seconds) > 0.05 * Math.abs(y - x)).sort((p, q) => Math.abs(q[1]) - Math.abs(p[1]))
        .map(([what, seconds]) => `${format.span(Math.abs(seconds))} ${seconds > 0 ? "more" : "less"} ${what}`);
      return format.element("li", {}, format.linkTo(a, job, { style: ["--color", a.color[job]] }),
        ` ${format.span(Math.abs(y - x))} ${y < x ? "sooner" : "later"}: ${words.join(", ")}`);
    });
    format.list(id, items, "nobody");
  }

  // A job that was looked for in one of the two runs is a large dot.
  function find(job, run) {
    if (!pair) return;
    const name = run.jobs[job];
    for (const dot of plot.dots) dot.size = pair[0].jobs[dot.job] === name ? 9 : 3.5;
    plot.draw();
  }

  return { init, show, find, draw: () => plot.draw() };
})();
