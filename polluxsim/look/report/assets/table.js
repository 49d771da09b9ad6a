// The table of jobs: it sorts and filters all of them, and has in the page only the rows that are in sight.
"use strict";
polluxReport.table = (() => {
  const { format, data } = polluxReport, { ofJobs } = polluxReport.metrics;
  const ROW = 34, SPARE = 8, MOST_PRINTED = 2000;
  let run, columns = [], order = [], sorted = { column: 0, down: false }, whole = false, found = -1;
  const byId = (id) => document.getElementById(id);

  function init() {
    for (const event of ["input", "change"]) byId("filter").addEventListener(event, apply);
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    byId("job-rows").addEventListener("scroll", draw, { passive: true });
    byId("job-head").addEventListener("click", ({ target }) => {
      const column = Number(target.closest("button")?.dataset.column ?? -1);
      if (column < 0) return;
      sorted = { column, down: sorted.column === column ? !sorted.down : false };
      apply();
    });
    addEventListener("beforeprint", () => { whole = true; draw(); });
    addEventListener("afterprint", () => { whole = false; draw(); });
  }

  function show(next) {
    run = next;
    const life = (job) => (data.wasSubmitted(run, job) ? Math.max(data.endOf(run, job) - run.jobSubmit[job], 0) : NaN);
    columns = [
      { name: "job", of: (job) => run.jobs[job] },
      { name: "application", of: (job) => run.applications[run.jobApplication[job]] },
      run.users.length && { name: "user", of: (job) => run.users[job] },
      run.queues.length && { name: "queue", of: (job) => run.queues[job] },
      run.jobAsked.some((gpus) => gpus > 0) && { name: "asked", title: "GPUs asked for", of: (job) => run.jobAsked[job], say: format.number },
      { name: "status", of: (job) => data.statusOf(run, job) },
      { name: "submitted", of: (job) => run.jobSubmit[job], say: (time) => Number.isFinite(time) ? format.clock(time) : "never" },
      { name: ofJobs.queueing_delay.title, of: (job) => (run.jobStart[job] < 0 ? NaN : run.jobStart[job] - run.jobSubmit[job]), say: format.span },
      { name: ofJobs.jct.title, title: ofJobs.jct.formula, of: life, say: format.span },
      run.jobFairness.some((rho) => rho > 0) && { name: ofJobs.fairness.title, title: ofJobs.fairness.formula, of: (job) => run.jobFairness[job], say: (rho) => format.number(rho, 2) },
      { name: format.heading(ofJobs.gpu_hours), of: (job) => run.jobGpuSeconds[job] / 3600, say: (hours) => format.number(hours, 2) },
      { name: ofJobs.average_gpus.title, of: (job) => (life(job) ? run.jobGpuSeconds[job] / life(job) : 0), say: (gpus) => format.number(gpus, 2) },
      { name: ofJobs.restarts.title, title: ofJobs.restarts.formula, of: (job) => run.jobRestarts[job], say: format.number },
      ...(run.jobFailures.some((count) => count > 0) ? [
        { name: ofJobs.failures.title, title: ofJobs.failures.formula, of: (job) => run.jobFailures[job], say: format.number },
        { name: ofJobs.effective_time_ratio.title, title: ofJobs.effective_time_ratio.formula, of: (job) => run.jobEffective[job], say: format.percent },
      ] : []),
    ].filter(Boolean);
    sorted = { column: columns.findIndex((column) => column.name === "submitted"), down: false };
    const option = (name) => format.element("option", { value: name }, name), all = () => format.element("option", { value: "" }, "all");
    format.fill("filter-application", all(), ...run.applications.map(option));
    const statuses = new Set(run.jobStatus);
    format.fill("filter-status", all(), ...run.statuses.filter((_, i) => statuses.has(i)).map(option));
    apply();
  }

  function apply() {
    const [name, application, status] = ["name", "application", "status"].map((part) => byId(`filter-${part}`).value.trim());
    order = [...run.jobs.keys()].filter((job) => run.jobs[job].toLowerCase().includes(name.toLowerCase())
      && (!application || run.applications[run.jobApplication[job]] === application) && (!status || data.statusOf(run, job) === status));
    const { of } = columns[sorted.column], sign = sorted.down ? -1 : 1, keys = new Map(order.map((job) => [job, of(job)]));
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true })
      : Number.isNaN(a) - Number.isNaN(b) || (a < b ? -1 : Number(a > b)));
    order.sort((a, b) => sign * compare(keys.get(a), keys.get(b)) || a - b);
    format.fill("filter-count", `${format.number(order.length)} of ${format.plural(run.numJobs, "job")}`);
    head();
    byId("job-rows").scrollTop = 0;
    draw();
  }

  function head() {
    const focused = document.activeElement?.dataset?.column;
    format.fill("job-head", ...columns.map(({ name, title, say }, column) => {
      const isSorted = column === sorted.column, direction = sorted.down ? "descending" : "ascending";
      return format.element("th", { scope: "col", class: say ? "right" : "", "aria-sort": isSorted ? direction : "none" },
        format.element("button", { type: "button", "data-column": column, title: title ?? `sort by ${name}` }, name,
          format.element("span", { "aria-hidden": "true" }, isSorted ? (sorted.down ? " ↓" : " ↑") : "")));
    }));
    if (focused !== undefined) document.querySelector(`#job-head [data-column="${focused}"]`)?.focus();
  }

  function draw() {
    if (!run) return;
    const host = byId("job-rows"), first = whole ? 0 : Math.max(Math.floor(host.scrollTop / ROW) - SPARE, 0);
    const last = whole ? Math.min(order.length, MOST_PRINTED) : Math.min(first + Math.ceil(host.clientHeight / ROW) + 2 * SPARE, order.length);
    const space = (rows) => format.element("tr", { class: "space", "aria-hidden": "true", style: ["height", `${rows * ROW}px`] });
    format.fill("job-body", space(first), ...order.slice(first, last).map((job) => format.element("tr", job === found ? { class: "found" } : {}, ...columns.map(({ of, say }, i) => (i
      ? format.element("td", say ? { class: "right" } : {}, say ? say(of(job)) : of(job))
      : format.element("th", { scope: "row" }, format.linkTo(run, job)))))),
    space(whole ? 0 : order.length - last));
    format.fill("job-left", whole && last < order.length ? `and ${format.number(order.length - last)} more` : "");
  }

  // A job that was looked for comes into sight, and stands out.
  function find(job) {
    found = job;
    const place = order.indexOf(job);
    if (place >= 0) byId("job-rows").scrollTop = Math.max(place - 4, 0) * ROW;
    draw();
  }

  return { init, show, find };
})();
