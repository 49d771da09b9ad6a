// Puts the parts to work: embeds the figures, follows the address, the chosen run, the moment and the theme.
"use strict";
polluxReport.page = (() => {
  const { data, format } = polluxReport;
  const STEPS = 2000, PLAY_SECONDS = 30;
  const byId = (id) => document.getElementById(id);
  const parts = ["map", "cluster", "table", "job"];
  let model, views, run, chosen = 0, playing = null;

  async function start() {
    theme(matchMedia("(prefers-color-scheme: dark)"));
    const { documents, items } = JSON.parse(byId("figures-data").textContent);
    [views] = await Bokeh.embed.embed_items(documents, items);
    const all = Bokeh.documents[0];
    model = (name) => {
      const found = all.get_model_by_name(name);
      if (!found) throw new Error(`the figures have no ${name}`);
      return found;
    };
    parts.forEach((part) => polluxReport[part].init(model));
    listen();
    await choose(0);
    moveTo(Math.min(busiest(), run.end));
    await follow();
    document.documentElement.dataset.ready = "true";
    performance.mark("ready");
  }

  function listen() {
    byId("run")?.addEventListener("change", (event) => choose(Number(event.target.value)));
    byId("time").addEventListener("input", (event) => moveTo(Number(event.target.value)));
    byId("play").addEventListener("click", () => play(playing === null));
    for (const button of document.querySelectorAll("[data-map]")) {
      button.addEventListener("click", () => polluxReport.map.move(button.dataset.map));
    }
    for (const box of document.querySelectorAll(".show-run")) box.addEventListener("change", () => toggle(box));
    window.addEventListener("hashchange", follow);
  }

  // The run that everything below the figures shows.
  async function choose(number) {
    run = await data.load(number);
    chosen = number;
    if (byId("run")) byId("run").value = String(number);
    const slider = byId("time");
    slider.max = String(run.end);
    slider.step = String(Math.max(run.end / STEPS, 1));
    format.fill("legend", ...run.legend.map(({ name, color }) => format.element("li", { style: ["--color", color] }, name)));
    for (const part of ["map", "cluster", "table"]) polluxReport[part].show(run);
    moveTo(Math.min(Number(slider.value), run.end));
  }

  // When most jobs are active: a moment worth opening with.
  function busiest() {
    let best = 0, most = -1, active = 0;
    const events = [];
    for (let job = 0; job < run.numJobs; job++) {
      events.push([run.jobSubmit[job], 1], [run.jobEnd[job] < 0 ? run.end : run.jobEnd[job], -1]);
    }
    events.sort((a, b) => a[0] - b[0]);
    for (const [time, change] of events) { active += change; if (active > most) { most = active; best = time; } }
    return best;
  }

  function moveTo(time) {
    byId("time").value = String(time);
    byId("time").setAttribute("aria-valuetext", format.span(time));
    byId("time-text").textContent = format.span(time);
    for (const name of ["map", "gpus", "efficiency", "queue"]) model(`now-${name}`).location = time / 3600;
    polluxReport.cluster.at(time);
  }

  function play(on) {
    cancelAnimationFrame(playing);
    playing = null;
    byId("play").textContent = on ? "Pause" : "Play";
    byId("play").setAttribute("aria-pressed", String(on));
    if (!on) return;
    let before = performance.now(), time = Number(byId("time").value);
    if (time >= run.end) time = 0;
    const tick = (now) => {
      time += (now - before) / 1000 * run.end / PLAY_SECONDS;
      before = now;
      moveTo(Math.min(time, run.end));
      if (time >= run.end) play(false); else playing = requestAnimationFrame(tick);
    };
    playing = requestAnimationFrame(tick);
  }

  function toggle(box) {
    for (const name of ["jct-cdf", "jct-by-application", "gpus", "efficiency", "queue"]) {
      for (const line of model(name).renderers) if (line.name === `run-${box.value}`) line.visible = box.checked;
    }
  }

  // #job/RUN/NAME is the page of a job; everything else is a place in the overview.
  async function follow() {
    const [kind, number, name] = location.hash.slice(1).split("/");
    const isJob = kind === "job" && byId(`run-${number}`) !== null;
    if (isJob && Number(number) !== chosen) await choose(Number(number));
    const job = isJob ? run.jobNumber.get(decodeURIComponent(name)) : undefined;
    const wasJob = byId("overview").hidden;
    byId("overview").hidden = job !== undefined;
    byId("job").hidden = job === undefined;
    if (job !== undefined) {
      play(false);
      await polluxReport.job.show(run, job);
      scrollTo({ top: 0, behavior: "instant" });
      byId("job-title").focus({ preventScroll: true });
    } else if (wasJob) {
      polluxReport.map.schedule();
      byId(kind || "main")?.scrollIntoView({ behavior: "instant" });
    }
  }

  // The system's colours until someone asks for others.
  function theme(system) {
    const root = document.documentElement, button = byId("theme");
    const set = (dark) => {
      root.dataset.theme = dark ? "dark" : "light";
      button.textContent = dark ? "Light mode" : "Dark mode";
      if (views) repaint();
    };
    let asked = false;
    set(system.matches);
    system.addEventListener("change", () => { if (!asked) set(system.matches); });
    button.addEventListener("click", () => { asked = true; set(root.dataset.theme !== "dark"); });
  }

  // Figures are painted on canvases, which do not notice that a colour of the style sheet is another.
  function repaint() {
    for (const root of Bokeh.documents[0].roots()) {
      const view = views.get_one(root);
      if (view.request_repaint) view.request_repaint();
    }
    polluxReport.cluster.draw();
  }

  function fail(error) {
    byId("failure").hidden = false;
    byId("failure").textContent = `This report could not be shown: ${error.message ?? error}`;
  }

  start().catch((error) => { fail(error); throw error; });
  // The inside of a figure's axes, in pixels of the page; empty while the figure is not in sight.
  function frame(plot) {
    const { width, height } = views.get_one(plot).frame.bbox;
    return { width: Math.floor(width), height: Math.floor(height) };
  }

  // Figures take their new size a moment after the page gave it to them.
  function onResize(plot, action) {
    new ResizeObserver(() => setTimeout(action, 100)).observe(views.get_one(plot).el);
  }

  return { moveTo, frame, onResize };
})();
