// The table of jobs: its rows are made once for a run; the filters say which of them are in sight.
"use strict";
polluxReport.table = (() => {
  const { format } = polluxReport;
  let table, source, filter, run;

  function init(model) {
    table = model("job-table"); source = model("jobs"); filter = table.view.filter;
    const form = document.getElementById("filter");
    for (const event of ["input", "change"]) form.addEventListener(event, apply);
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  function show(next) {
    run = next;
    const jobs = [...run.jobs.keys()], ends = jobs.map((job) => (run.jobEnd[job] < 0 ? run.end : run.jobEnd[job]));
    const lives = jobs.map((job) => Math.max(ends[job] - run.jobSubmit[job], 0));
    filter.indices = [];
    source.data = {
      job: run.jobs, href: jobs.map((job) => format.jobLink(run, job)),
      application: jobs.map((job) => run.applications[run.jobApplication[job]]),
      status: jobs.map((job) => (run.jobEnd[job] < 0 ? "cut off" : "completed")),
      submitted: Array.from(run.jobSubmit, (time) => time / 3600),
      delay: jobs.map((job) => (run.jobStart[job] < 0 ? NaN : (run.jobStart[job] - run.jobSubmit[job]) / 60)),
      jct: lives.map((life) => life / 3600),
      gpu_hours: Array.from(run.jobGpuSeconds, (seconds) => seconds / 3600),
      mean_gpus: jobs.map((job) => (lives[job] ? run.jobGpuSeconds[job] / lives[job] : 0)),
      restarts: Array.from(run.jobRestarts),
    };
    const option = (name) => format.element("option", { value: name }, name);
    format.fill("filter-application", format.element("option", { value: "" }, "all"), ...run.applications.map(option));
    apply();
  }

  function apply() {
    const name = document.getElementById("filter-name").value.trim().toLowerCase();
    const application = document.getElementById("filter-application").value;
    const status = document.getElementById("filter-status").value;
    const { job, application: applications, status: states } = source.data, indices = [];
    for (let i = 0; i < job.length; i++) {
      if (name && !job[i].toLowerCase().includes(name)) continue;
      if ((application && applications[i] !== application) || (status && states[i] !== status)) continue;
      indices.push(i);
    }
    filter.indices = indices;
    document.getElementById("filter-count").textContent =
      `${format.number(indices.length)} of ${format.plural(job.length, "job")}`;
  }

  return { init, show };
})();
