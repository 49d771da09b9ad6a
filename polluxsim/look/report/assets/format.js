// Numbers and times in words, and elements made of text: what comes from a run is never taken for markup.
"use strict";
polluxReport.format = (() => {
  const number = (value, digits = 0) => Number.isFinite(value)
    ? value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-(?=[0.,]*$)/, "").replace("-", "−") : "–";
  const pad = (count) => String(count).padStart(2, "0");

  // A length of time: 9.3 → "9.3 s", 90 → "1 min 30 s", 3700 → "1 h 02 min", 3313000 → "38 d 8 h"
  function span(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    if (seconds < 59.5) return `${Number(seconds.toPrecision(2))} s`;
    const whole = Math.round(seconds), minutes = Math.round(whole / 60), hours = Math.round(whole / 3600);
    if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
    return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
  }

  // A moment, as `polluxsim why` takes it: 4680 → "1:18:00"
  function clock(seconds) {
    const whole = Math.round(seconds);
    return `${Math.floor(whole / 3600)}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}`;
  }

  // A metric as the heading of values that do not name its unit.
  const heading = ({ title, unit }) => (unit && !["h", "%", "$"].includes(unit) ? `${title} [${unit}]` : title);

  const percent = (share) => Number.isFinite(share) ? `${number(100 * share, 0)} %` : "–";
  const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
  const inUnit = (value, unit) => unit === "%" ? percent(value)
    : unit === "$" ? `$${number(value, 2)}` : number(value, Number.isInteger(value) ? 0 : 1);

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") made.style.setProperty(...value); else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }
  // A patch of a colour, which print shows too.
  function swatch(color) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg"), patch = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" })) made.setAttribute(name, value);
    for (const [name, value] of Object.entries({ width: 10, height: 10, rx: 2, style: `fill: ${color}` })) patch.setAttribute(name, value);
    made.append(patch);
    return made;
  }
  const fill = (id, ...children) => document.getElementById(id).replaceChildren(...children);
  const facts = (id, pairs) => fill(id, ...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const options = (select, names) => select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  const list = (id, items, none) => fill(id, ...(items.length ? items : [element("li", {}, none)]));
  const jobLink = (run, job) => `#job/${run.number}/${encodeURIComponent(run.jobs[job])}`;
  const linkTo = (run, job, attributes = {}, ...children) =>
    element("a", { href: jobLink(run, job), ...attributes }, ...(children.length ? children : [run.jobs[job]]));

  return { number, span, clock, percent, plural, heading, inUnit, element, swatch, fill, facts, options, list, jobLink, linkTo };
})();
