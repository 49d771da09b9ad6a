"use strict";
const of = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const dark = matchMedia("(prefers-color-scheme: dark)");

/* Three digits that count, in groups. */
function said(value) {
  if (value === null) return "–";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function element(kind, attributes, text = "") {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/* Draw lines {points: [[x, y], …], colour, name, dash} and marks {x, y, colour}; x by logarithm where that is said. */
function draw(svg, { lines, marks = [], xName, yName, logarithmic = false, label }) {
  const [wide, high] = [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
  const room = { left: 62, right: 16, top: 30, bottom: 42 };
  const all = lines.flatMap((line) => line.points).filter(([, y]) => y !== null);
  const xs = all.map(([x]) => x), top = Math.max(...all.map(([, y]) => y)) * 1.08 || 1;
  const scale = logarithmic ? Math.log : (x) => x;
  const [least, most] = [scale(Math.min(...xs)), scale(Math.max(...xs))];
  const across = (x) => room.left + (scale(x) - least) / (most - least || 1) * (wide - room.left - room.right);
  const up = (y) => high - room.bottom - y / top * (high - room.top - room.bottom);
  svg.replaceChildren();
  svg.setAttribute("aria-label", label);
  const step = 10 ** Math.floor(Math.log10(top / 2)), every = [1, 2, 5, 10].find((n) => top / (n * step) <= 5.5) * step;
  for (let y = 0; y <= top; y += every) {
    svg.append(element("line", { x1: room.left, x2: wide - room.right, y1: up(y), y2: up(y), class: "grid" }));
    svg.append(element("text", { x: room.left - 8, y: up(y) + 4, "text-anchor": "end" }, y.toLocaleString("en", { notation: "compact" })));
  }
  const ticks = [...new Set(xs)].sort((a, b) => a - b);
  let last = -Infinity;
  for (const x of ticks) {
    if (across(x) - last < 44) continue;
    last = across(x);
    svg.append(element("text", { x: last, y: high - room.bottom + 18, "text-anchor": "middle" }, x.toLocaleString("en", { notation: "compact" })));
  }
  svg.append(element("text", { x: wide - room.right, y: high - 6, "text-anchor": "end" }, xName));
  svg.append(element("text", { x: 4, y: 14 }, yName));
  for (const { points, colour, name, dash = "" } of lines) {
    const there = points.filter(([, y]) => y !== null);
    const path = there.map(([x, y], i) => `${i ? "L" : "M"}${across(x).toFixed(1)} ${up(y).toFixed(1)}`).join("");
    const made = element("path", { d: path, fill: "none", "stroke-width": 2.5, "stroke-dasharray": dash, "stroke-linejoin": "round" });
    made.style.stroke = colour;
    made.append(element("title", {}, name));
    svg.append(made);
  }
  let x = wide - room.right;
  for (const { name, colour, dash = "" } of [...lines].reverse().filter((line, i, every) => every.findIndex((other) => other.name === line.name) === i)) {
    x -= name.length * 7.4;
    svg.append(element("text", { x, y: 14 }, name));
    const key = element("line", { x1: x - 26, x2: x - 6, y1: 10, y2: 10, "stroke-width": 2.5, "stroke-dasharray": dash });
    key.style.stroke = colour;
    svg.append(key);
    x -= 42;
  }
  for (const { x: at, y, colour, hollow } of marks) {
    const made = element("circle", { cx: across(at), cy: up(y), r: 6, "stroke-width": 2.5 });
    made.style.stroke = colour;
    made.style.fill = hollow ? "var(--surface)" : colour;
    svg.append(made);
  }
}

/* ---- Goodput ---- */
let application = DATA.applications[0];

function goodputs(gpus) {
  const worth = application.efficiency[of("moment").value];
  return application.throughput[gpus].map((rate, i) => rate === null ? null : rate * worth[i]);
}

function best(values) {
  return values.reduce((found, value, i) => value !== null && (found < 0 || value > values[found]) ? i : found, -1);
}

/* The batch size chosen, or the nearest that so many GPUs can have. */
function possible(rates, batch) {
  const there = rates.map((rate, i) => i).filter((i) => rates[i] !== null);
  return there.reduce((found, i) => Math.abs(i - batch) < Math.abs(found - batch) ? i : found, there[0]);
}

function choose(name) {
  application = DATA.applications.find((other) => other.name === name);
  of("batch").max = application.batches.length - 1;
  of("moment").max = application.epochs.length - 1;
  of("batch").value = Math.min(of("batch").value, of("batch").max);
  show();
}

function show() {
  const gpus = Number(of("gpus").value), moment = Number(of("moment").value), rates = application.throughput[gpus];
  const batch = possible(rates, Number(of("batch").value));
  of("batch").value = batch;
  const products = goodputs(gpus), peak = best(products), worth = application.efficiency[moment];
  of("gpus-said").textContent = `${DATA.gpus[gpus]}`;
  of("batch-said").textContent = `${application.batches[batch].toLocaleString("en")} examples`;
  of("moment-said").textContent = `${Math.round(100 * moment / (application.epochs.length - 1))} %, epoch ${application.epochs[moment]}`;
  of("throughput").textContent = said(rates[batch]);
  of("efficiency").textContent = `${(100 * worth[batch]).toFixed(1)} %`;
  of("product").textContent = said(products[batch]);
  of("product-said").textContent = batch === peak ? "the most these GPUs can do"
    : `${(100 * products[batch] / products[peak]).toFixed(0)} % of the best, at ${application.batches[peak].toLocaleString("en")}`;
  of("peak").disabled = batch === peak;
  const along = (values) => values.map((value, i) => [application.batches[i], value]);
  draw(of("by-batch"), {
    logarithmic: true, xName: "batch size [examples]", yName: "examples/s",
    label: `Goodput peaks at a batch size of ${application.batches[peak]}`,
    lines: [{ points: along(rates), colour: "var(--other)", name: "throughput", dash: "6 4" }, { points: along(products), colour: "var(--accent)", name: "goodput" }],
    marks: [{ x: application.batches[peak], y: products[peak], colour: "var(--accent)", hollow: true }, { x: application.batches[batch], y: products[batch], colour: "var(--accent)" }],
  });
  const bests = DATA.gpus.map((count, i) => { const values = goodputs(i); return [count, values[best(values)] ?? null]; });
  const kept = DATA.gpus.map((count, i) => [count, goodputs(i)[batch]]);
  draw(of("by-gpus"), {
    xName: "GPUs", yName: "goodput [examples/s]", label: "Goodput by GPUs, with the best batch size for each and with this one",
    lines: [{ points: kept, colour: "var(--third)", name: "this batch size", dash: "6 4" }, { points: bests, colour: "var(--accent)", name: "best batch size" }],
    marks: [{ x: DATA.gpus[gpus], y: products[batch], colour: "var(--accent)" }],
  });
}

/* ---- A round ---- */
let round = 0, yours = [];
const total = DATA.nodes.reduce((sum, size) => sum + size, 0);
const count = (placement) => placement.reduce((sum, [, gpus]) => sum + gpus, 0);
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/* What a job has with so many GPUs: on the nodes of Pollux's choice or of before where their number is that, else packed. */
function placed(job, gpus) {
  const known = [job.before, job.after].find((placement) => count(placement) === gpus);
  const several = known ? known.length > 1 : gpus > Math.max(...DATA.nodes);
  const changed = !(known && same(known, job.before));
  return { speedup: job.speedups[Number(several)][gpus], factor: changed ? job.factor : 1 };
}

function powerMean(values, power) {
  const shifted = values.map((value) => Math.log(value + DATA.floor)), mean = (list) => list.reduce((sum, x) => sum + x, 0) / list.length;
  if (power === 0) return Math.exp(mean(shifted));
  const largest = Math.max(...shifted.map((log) => power * log));
  return Math.exp((Math.log(mean(shifted.map((log) => Math.exp(power * log - largest)))) + largest) / power);
}

function fitness(counts) {
  const worth = DATA.rounds[round].jobs.map((job, i) => { const got = placed(job, counts[i]); return got.speedup * got.factor; });
  return powerMean(worth, Number(of("power").value));
}

const chosen = (which) => DATA.rounds[round].jobs.map((job) => count(job[which]));
const used = (counts) => counts.reduce((sum, gpus) => sum + gpus, 0);

/* The best of all that give some GPUs to one job, take some from it, or pass some on from one to another. */
function exchanged(counts) {
  const jobs = DATA.rounds[round].jobs, tried = [];
  const fits = (next) => used(next) <= total && next.every((gpus, i) => gpus >= 0 && gpus < jobs[i].speedups[0].length);
  for (let i = 0; i < jobs.length; i += 1) {
    for (let j = -1; j < jobs.length; j += 1) {
      for (let by = -total; by <= total; by += 1) {
        const next = counts.map((gpus, k) => gpus + by * (Number(k === i) - Number(k === j)));
        if (i !== j && fits(next)) tried.push(next);
      }
    }
  }
  return tried.reduce((found, next) => fitness(next) > fitness(found) ? next : found, counts);
}

function goTo(number) {
  round = number;
  yours = chosen("after");
  showRound();
}

function showRound() {
  const now = DATA.rounds[round], power = Number(of("power").value);
  of("round-said").textContent = `round ${round + 1} of ${DATA.rounds.length}, at ${Math.round(now.time / 60)} min`;
  of("earlier").disabled = round === 0;
  of("later").disabled = round === DATA.rounds.length - 1;
  of("power-said").textContent = power === 1 ? "1, the mean" : power === 0 ? "0, the geometric mean" : String(power).replace("-", "−");
  const [theirs, own, before] = [chosen("after"), yours, chosen("before")].map(fitness);
  const compared = same(yours, chosen("after")) ? "Pollux’s choice is chosen" : Math.abs(own / theirs - 1) < 1e-4 ? "Yours is as good"
    : own > theirs ? "Yours is better" : "Yours is worse";
  of("verdict").textContent = `${compared}. Fitness: yours ${own.toFixed(4)}, Pollux’s ${theirs.toFixed(4)}, as before the round ${before.toFixed(4)}.`
    + ` ${used(yours)} of ${total} GPUs are given${power === DATA.power ? "" : `; Pollux chose for p = ${String(DATA.power).replace("-", "−")}`}.`;
  of("jobs").replaceChildren(...now.jobs.map((job, i) => row(job, i)));
  const lines = now.jobs.map((job) => ({
    name: job.job, colour: colour(job),
    points: job.speedups[0].map((_, gpus) => [gpus, gpus <= Math.max(...DATA.nodes) ? job.speedups[0][gpus] : job.speedups[1][gpus]]).slice(0, total + 1),
  }));
  draw(of("speedups"), {
    lines, xName: "GPUs", yName: `speedup over ${now.share} GPUs`, label: "Speedup of each job by GPUs",
    marks: now.jobs.map((job, i) => ({ x: yours[i], y: placed(job, yours[i]).speedup, colour: colour(job) })),
  });
}

const colour = (job) => (DATA.applications.find((other) => other.name === job.application) ?? { colour: "var(--muted)" }).colour;

function row(job, i) {
  const made = document.createElement("tr"), got = placed(job, yours[i]);
  const cell = (text) => { const td = document.createElement("td"); td.textContent = text; made.append(td); return td; };
  const name = cell(job.knows ? job.job : `${job.job} (not yet measured)`), dot = document.createElement("span");
  dot.className = "dot";
  dot.style.background = colour(job);
  name.prepend(dot);
  cell(count(job.before));
  cell(count(job.after));
  const own = cell("");
  const button = (sign, by, allowed) => {
    const pressed = document.createElement("button");
    pressed.type = "button";
    pressed.textContent = sign;
    pressed.disabled = !allowed;
    pressed.setAttribute("aria-label", `${by > 0 ? "one GPU more" : "one GPU fewer"} for ${job.job}`);
    pressed.addEventListener("click", () => {
      yours[i] += by;
      showRound();
      of("jobs").rows[i].querySelectorAll("button")[by > 0 ? 1 : 0].focus();
    });
    return pressed;
  };
  own.append(button("−", -1, yours[i] > 0), String(yours[i]), button("+", 1, used(yours) < total && yours[i] + 1 < job.speedups[0].length));
  cell(got.speedup.toFixed(2));
  cell(got.factor === 1 ? "–" : got.factor.toFixed(2));
  cell((got.speedup * got.factor).toFixed(2));
  return made;
}

for (const { name, title } of DATA.applications) of("application").append(new Option(title, name));
of("gpus").max = DATA.gpus.length - 1;
of("gpus").value = DATA.gpus.indexOf(8);
of("batch").value = 8;
of("moment").value = 2;
of("power").value = DATA.power;
of("application").addEventListener("change", (event) => choose(event.target.value));
for (const id of ["gpus", "batch", "moment"]) of(id).addEventListener("input", show);
of("peak").addEventListener("click", () => { of("batch").value = best(goodputs(Number(of("gpus").value))); show(); });
of("earlier").addEventListener("click", () => goTo(round - 1));
of("later").addEventListener("click", () => goTo(round + 1));
of("power").addEventListener("input", showRound);
of("pollux").addEventListener("click", () => { yours = chosen("after"); showRound(); });
of("before").addEventListener("click", () => { yours = chosen("before"); showRound(); });
of("exchange").addEventListener("click", () => { yours = exchanged(yours); showRound(); });
choose((DATA.applications.find((other) => other.name === "cifar10") ?? application).name);
of("application").value = application.name;
goTo(Math.min(3, DATA.rounds.length - 1));
document.documentElement.dataset.ready = "true";
