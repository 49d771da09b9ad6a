// Numbers and times in words, and elements made of text: what comes from a run is never taken for markup.
"use strict";
polluxReport.format = (() => {
  const number = (value, digits = 0) => Number.isFinite(value)
    ? value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) : "–";
  const hours = (seconds, digits = 2) => `${number(seconds / 3600, digits)} h`;

  // 90 → "1 min 30 s", 3700 → "1 h 02 min"
  function span(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    if (seconds < 60) return `${number(seconds, seconds < 10 ? 1 : 0)} s`;
    const whole = Math.round(seconds);
    if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
    const minutes = Math.round(whole / 60);
    return `${number(Math.floor(minutes / 60))} h ${String(minutes % 60).padStart(2, "0")} min`;
  }
  const percent = (share) => Number.isFinite(share) ? `${number(100 * share, 0)} %` : "–";
  const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") made.style.setProperty(...value); else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }
  const fill = (id, ...children) => document.getElementById(id).replaceChildren(...children);
  const facts = (id, pairs) => fill(id, ...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const jobLink = (run, job) => `#job/${run.number}/${encodeURIComponent(run.jobs[job])}`;

  return { number, hours, span, percent, plural, element, fill, facts, jobLink };
})();
