// Charts in SVG, all with the same borders, so that those of one width line up; drawn anew when what is in sight changes.
"use strict";
polluxReport.chart = (() => {
  const { format, data } = polluxReport;
  const LEFT = 58, RIGHT = 14, TOP = 8, BOTTOM = 24, NS = "http://www.w3.org/2000/svg";
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000,
    864000, 1728000, 4320000, 8640000];
  const LENGTHS = [0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10800, 36000, 86400, 259200, 864000, 2592000, 8640000];
  const charts = new Set();

  const svg = (tag, attributes, ...children) => {
    const made = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // An axis of time is told as a clock, or in days where it is long.
  function timeTicks({ start, end }, room) {
    const step = STEPS.find((each) => (end - start) / each <= Math.max(room / 70, 2)) ?? (end - start) / 4, found = [];
    for (let time = Math.ceil(start / step) * step; time <= end * (1 + 1e-9); time += step) {
      const text = step % 86400 === 0 ? `${time / 86400} d` : end - start < 120 && end < 600 ? `${time} s`
        : step % 3600 === 0 ? `${time / 3600} h` : step % 60 ? format.clock(time) : format.clock(time).slice(0, -3);
      found.push([time, text]);
    }
    return found;
  }

  // An axis of powers has round lengths of time, as many as can be told apart, whole units before others.
  function lengthTicks(axis, room) {
    const found = [], at = (each) => along(axis, each) * room;
    for (const each of [1, 60, 3600, 86400, ...LENGTHS]) {
      if (each < axis.start || each > axis.end || found.some((other) => Math.abs(at(each) - at(other)) < 44)) continue;
      found.push(each);
    }
    return found.map((each) => [each, each < 86400 ? format.span(each).replace(/ 00 min| 0 s/, "") : `${each / 86400} d`]);
  }

  // The round lengths of time that hold all of some.
  function lengthRange(lengths) {
    const low = Math.min(...lengths), high = Math.max(...lengths);
    return { start: LENGTHS.findLast((each) => each < low) ?? 0.05, end: LENGTHS.find((each) => each > high) ?? high };
  }

  // Counts have whole ticks, shares tens of per cent.
  function countTicks({ start, end, unit }, room) {
    const raw = (end - start) / Math.max(room / 32, 2), ten = 10 ** Math.floor(Math.log10(raw));
    let step = ten * [1, 2, 5, 10].find((each) => each * ten >= raw);
    if (!unit) step = Math.max(step, 1);
    const found = [];
    for (let k = Math.ceil(start / step); k * step <= end * (1 + 1e-9); k++) {
      found.push([k * step, unit === "$" ? `$${format.number(k * step, step < 1 ? 2 : 0)}` : format.inUnit(k * step, unit)]);
    }
    return found;
  }

  // The share of the way along an axis where a value stands, and back.
  const along = (axis, value) => axis.log ? Math.log(Math.max(value, axis.start) / axis.start) / Math.log(axis.end / axis.start)
    : (value - axis.start) / (axis.end - axis.start);
  const back = (axis, share) => axis.log ? axis.start * (axis.end / axis.start) ** share : axis.start + share * (axis.end - axis.start);

  // A chart in an element. Lines have corners x and values y: a step line one corner more than values, a straight one as many.
  function make(host, { height, x, y, label, ...parts }) {
    const chart = { host, height, x, y, left: LEFT, lines: [], areas: [], dots: [], strips: [], marks: [], ticks: [], ...parts };
    const root = svg("svg", { role: "img", "aria-label": label, width: "100%", height });
    host.replaceChildren(root);
    host.classList.add("chart");
    chart.at = (clientX, clientY) => {
      const box = root.getBoundingClientRect(), share = (clientX - box.left - chart.left) / (box.width - chart.left - RIGHT);
      return { x: back(x, share), inside: share >= 0 && share <= 1, left: clientX - box.left, top: clientY - box.top };
    };
    chart.place = (px, py) => [chart.left + along(x, px) * (root.clientWidth - chart.left - RIGHT), TOP + (1 - along(y, py)) * (chart.height - TOP - BOTTOM)];
    chart.draw = () => draw(chart, root);
    charts.add(chart);
    new ResizeObserver(() => { if (root.clientWidth !== chart.width) chart.draw(); }).observe(host);
    return chart;
  }

  function draw(chart, root) {
    const width = chart.width = root.clientWidth, { left } = chart, inner = width - left - RIGHT;
    if (inner <= 0) return;
    chart.prepare?.(inner);
    root.setAttribute("height", chart.height);
    root.setAttribute("viewBox", `0 0 ${width} ${chart.height}`);
    const at = (x, y) => chart.place(x, y), low = chart.height - BOTTOM, clip = `clip-${[...charts].indexOf(chart)}`;
    const inside = svg("g", { "clip-path": `url(#${clip})` });
    const frame = svg("clipPath", { id: clip }, svg("rect", { x: left, y: 0, width: inner, height: low + 1 }));
    const axes = svg("g", { class: "axes" });
    for (const [value, text] of (chart.x.ticks ?? timeTicks)(chart.x, inner)) {
      const [x] = at(value, chart.y.start);
      axes.append(svg("line", { x1: x, x2: x, y1: low, y2: low + 4 }), svg("text", { x, y: low + 17, "text-anchor": "middle" }, text));
    }
    for (const [value, text] of (chart.y.ticks ?? countTicks)(chart.y, low - TOP)) {
      const [, y] = at(chart.x.start, value);
      axes.append(svg("line", { x1: left, x2: width - RIGHT, y1: y, y2: y }), svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, text));
    }
    for (const [start, end] of chart.strips) {
      const [from] = at(start, 0), [to] = at(end, 0);
      inside.append(svg("rect", { class: "strip", x: from, y: TOP, width: Math.max(to - from, 0.5), height: low - TOP }));
    }
    for (const { time, label } of chart.forks ?? []) {
      const [x] = at(time, 0), isLeft = x > left + 0.7 * inner;
      if (x < left || x > width - RIGHT) continue;
      inside.append(svg("line", { class: "fork", x1: x, x2: x, y1: 0, y2: low }));
      if (chart.namesForks) inside.append(svg("text", { class: "fork-name", x: x + (isLeft ? -5 : 5), y: TOP + 4, "text-anchor": isLeft ? "end" : "start" }, label));
    }
    for (const mark of chart.marks) inside.append(svg("line", { class: "mark", x1: at(mark, 0)[0], x2: at(mark, 0)[0], y1: TOP, y2: low }));
    for (const [kind, times] of chart.ticks) {
      const found = new Set(Array.from(times, (time) => Math.round(at(time, 0)[0])));
      inside.append(svg("path", { class: kind, d: [...found].map((x) => `M${x} ${TOP}v9`).join("") }));
    }
    for (const { x, low: below, high, color } of chart.areas) inside.append(svg("path", { d: area(at, x, below, high), style: `fill: ${color}` }));
    for (const line of chart.lines) if (!line.hidden) inside.append(path(at, seen(chart, line), line));
    for (const dot of chart.dots) if (!dot.hidden) inside.append(...marked(at, dot));
    if (chart.diagonal) {
      const [[x1, y1], [x2, y2]] = [at(chart.x.start, chart.x.start), at(chart.x.end, chart.x.end)];
      inside.prepend(svg("line", { class: "mark", x1, y1, x2, y2 }));
    }
    root.replaceChildren(frame, axes, inside);
  }

  // What is in sight of a line: a curve over time has its corners for this window.
  const seen = (chart, line) => (line.curve ? polluxReport.curves.seen(line.curve, chart.x.start, chart.x.end, chart.width) : line);

  function path(at, { x, y }, { color, dash = [] }) {
    const straight = x.length === y.length;
    let d = "", broken = true;
    for (let i = 0; i < y.length; i++) {
      if (Number.isNaN(y[i])) { broken = true; continue; }
      const [left, top] = at(x[i], y[i]).map((each) => each.toFixed(1));
      d += broken ? `M${left} ${top}` : straight ? `L${left} ${top}` : `V${top}`;
      while (!straight && y[i + 1] === y[i]) i++;
      if (!straight) d += `H${at(x[i + 1], 0)[0].toFixed(1)}`;
      broken = false;
    }
    return svg("path", { d, class: "line", style: `stroke: ${color}`, "stroke-dasharray": dash.map((each) => 2 * each).join(" ") });
  }

  function area(at, x, low, high) {
    const up = [], down = [], round = (value) => Math.round(10 * value) / 10;
    for (let i = 0; i < high.length; i++) {
      const first = i;
      while (high[i + 1] === high[i] && low[i + 1] === low[i]) i++;
      const [left, top] = at(x[first], high[i]), [right, bottom] = at(x[i + 1], low[i]);
      up.push(`${first ? "V" : `M${round(left)} `}${round(top)}H${round(right)}`);
      down.push(`V${round(bottom)}H${round(left)}`);
    }
    return `${up.join("")}${down.reverse().join("")}Z`;
  }

  // A dot, with a line through it where it has a spread.
  function marked(at, { x, y, low, high, color, size = 5 }) {
    const [cx, cy] = at(x, y), dot = svg("circle", { cx, cy, r: size, style: `fill: ${color}` });
    if (low === undefined) return [dot];
    return [svg("line", { class: "spread", x1: at(low, y)[0], x2: at(high, y)[0], y1: cy, y2: cy, style: `stroke: ${color}` }), dot];
  }

  // What a line has at a place along the axis; undefined where it has nothing.
  function valueAt({ x, y, curve }, place) {
    if (curve) return place < 0 || place > curve.end ? undefined : curve.at(place);
    const i = data.lastUpTo(x, place);
    if (i < 0 || i >= y.length) return undefined;
    if (x.length !== y.length || i === y.length - 1) return y[i];
    return y[i] + (y[i + 1] - y[i]) * (place - x[i]) / (x[i + 1] - x[i]);
  }

  // The dot nearest to a place of the chart, no farther than a fingertip.
  function nearest(chart, left, top) {
    let best, closest = 18 ** 2;
    for (const dot of chart.dots) {
      const [x, y] = chart.place(dot.x, dot.y), distance = (x - left) ** 2 + (y - top) ** 2;
      if (!dot.hidden && distance < closest) { closest = distance; best = dot; }
    }
    return best;
  }

  // A box beside the pointer with a table of what is there: a head, and rows of a colour, a name and values.
  function readout(host) {
    const box = format.element("div", { class: "readout", role: "status" });
    box.hidden = true;
    host.append(box);
    return {
      hide() { box.hidden = true; },
      show(left, top, head, rows) {
        box.hidden = false;
        box.replaceChildren(format.element("b", {}, head), format.element("table", {}, format.element("tbody", {}, ...rows.map(
          ([color, name, ...values]) => format.element("tr", {}, format.element("th", {}, ...(color ? [format.swatch(color)] : []), name),
            ...values.map((value) => format.element("td", {}, value)))))));
        const beyond = left + box.offsetWidth + 24 > host.clientWidth;
        box.style.left = `${Math.max(beyond ? left - box.offsetWidth - 14 : left + 14, 0)}px`;
        box.style.top = `${Math.max(top - box.offsetHeight - 10, 0)}px`;
      },
    };
  }

  // Tell what is under the pointer; `tell` gives a head and rows, or nothing. A click goes to `pick`.
  function hover(chart, tell, pick) {
    const box = readout(chart.host), told = (event) => tell(chart.at(event.clientX, event.clientY));
    chart.host.addEventListener("pointermove", (event) => {
      const { left, top } = chart.at(event.clientX, event.clientY), found = told(event);
      if (found) box.show(left, top, ...found); else box.hide();
    });
    chart.host.addEventListener("pointerleave", box.hide);
    if (pick) chart.host.addEventListener("click", (event) => pick(chart.at(event.clientX, event.clientY)));
  }

  return { LEFT, RIGHT, make, hover, readout, valueAt, nearest, lengthTicks, lengthRange };
})();
