// The map of GPUs over time: paints what is in sight, a cell at most a pixel wide, so that its cost does not depend on
// how long the run was. Rows run from the top, so a row's place on the axis is counted from the bottom.
"use strict";
polluxReport.map = (() => {
  const { format, data } = polluxReport;
  const MOST_LABELS = 200, LABEL_WIDTH = 7, LABEL_HEIGHT = 13, LINE_HEIGHT = 8;
  let plot, grid, image, labels, down, NDArray, run, hours, due = false;

  function init(model) {
    plot = model("map"); grid = model("map-nodes"); image = model("map-image"); labels = model("map-labels"); down = model("map-down"); hours = model("hours");
    NDArray = image.data.image[0].constructor;
    for (const range of [plot.x_range, plot.y_range]) {
      for (const name of ["start", "end"]) range.properties[name].change.connect(schedule);
    }
    polluxReport.page.onResize(plot, schedule);
  }

  function show(next) {
    run = next;
    plot.y_range.setv({ start: 0, end: run.numRows, bounds: [0, run.numRows] });
    const top = Array.from(run.downRow, (row) => run.numRows - row);
    down.data = { left: Array.from(run.downStart, (time) => time / 3600), right: Array.from(run.downEnd, (time) => time / 3600),
      top, bottom: top.map((row, i) => row - run.downRows[i]) };
    schedule();
  }

  function schedule() {
    if (due || !run) return;
    due = true;
    requestAnimationFrame(() => { due = false; paint(); });
  }

  function paint() {
    const { width, height } = polluxReport.page.frame(plot);
    if (!width || !height) return;
    const from = plot.x_range.start * 3600, to = plot.x_range.end * 3600;
    const bottom = Math.max(Math.floor(plot.y_range.start), 0), top = Math.min(Math.ceil(plot.y_range.end), run.numRows);
    if (!(to > from) || top <= bottom) return;
    const gpusPerCell = Math.max(1, Math.ceil((top - bottom) / height));
    const rows = Math.ceil((top - bottom) / gpusPerCell);
    const pixels = new Uint32Array(rows * width), cell = (to - from) / width;
    const owner = new Int32Array(width), longest = new Float64Array(width), busy = new Float64Array(width);
    for (let line = 0; line < rows; line++) {
      owner.fill(-1); longest.fill(0); busy.fill(0);
      const count = Math.min(gpusPerCell, top - bottom - line * gpusPerCell);
      for (let k = 0; k < count; k++) {
        collect(run.numRows - 1 - (bottom + line * gpusPerCell + k), from, to, cell, owner, longest, busy);
      }
      fillLine(pixels, line * width, owner, busy, cell * count, count > 1 ? 0 : cell, from);
    }
    image.data = { image: [new NDArray(pixels, [rows, width])], x: [from / 3600], y: [bottom], dw: [(to - from) / 3600],
      dh: [rows * gpusPerCell] };
    label(from, to, bottom, top, width, height);
    nodes(bottom, top, height);
    document.getElementById("map-detail").textContent = gpusPerCell > 1
      ? `A line of the map stands for ${gpusPerCell} GPUs: the colour is the longest holder's, paler where they are idle. Zoom in to see each GPU.`
      : `A column stands for ${format.span(cell)}: the colour is the longest holder's.`;
  }

  // Who holds a GPU longest in each cell, and how long anyone does.
  function collect(row, from, to, cell, owner, longest, busy) {
    const last = owner.length - 1;
    for (let i = firstInSight(row, from); i < run.rowFirst[row + 1]; i++) {
      const held = run.rowHeld[i], start = Math.max(run.heldStart[held], from), end = Math.min(run.heldEnd[held], to);
      if (start >= to) break;
      const first = Math.min(Math.floor((start - from) / cell), last), final = Math.min(Math.floor((end - from) / cell), last);
      for (let column = first; column <= final; column++) {
        const overlap = Math.min(end, from + (column + 1) * cell) - Math.max(start, from + column * cell);
        busy[column] += overlap;
        if (overlap > longest[column]) { longest[column] = overlap; owner[column] = held; }
      }
    }
  }

  function firstInSight(row, from) {
    let low = run.rowFirst[row], high = run.rowFirst[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.heldEnd[run.rowHeld[middle]] <= from) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Opaque where all of a cell is held; a lighter column marks where a new stretch begins, if stretches are wide enough.
  function fillLine(pixels, offset, owner, busy, whole, cell, from) {
    for (let column = 0; column < owner.length; column++) {
      const held = owner[column];
      if (held < 0) continue;
      const [r, g, b] = run.rgb[run.heldJob[held]];
      const begins = cell > 0 && (column === 0 ? run.heldStart[held] >= from : owner[column - 1] !== held);
      const wide = begins && run.heldEnd[held] - run.heldStart[held] > 5 * cell;
      const alpha = wide ? 90 : Math.round(255 * (0.25 + 0.75 * Math.min(busy[column] / whole, 1)));
      pixels[offset + column] = ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
    }
  }

  // Names on the rectangles that have room for one, the largest first.
  function label(from, to, bottom, top, width, height) {
    const found = [], perHour = width / (to - from), perRow = height / (top - bottom);
    for (let i = 0; i < run.heldRow.length; i++) {
      const start = Math.max(run.heldStart[i], from), end = Math.min(run.heldEnd[i], to);
      if (end <= start || run.heldRows[i] * perRow < LABEL_HEIGHT) continue;
      const y = run.numRows - run.heldRow[i] - run.heldRows[i] / 2;
      const room = (end - start) * perHour, text = run.jobs[run.heldJob[i]];
      if (room > LABEL_WIDTH * text.length + 8 && y > bottom && y < top) found.push([room * run.heldRows[i], i, start, y, text]);
    }
    found.sort((a, b) => b[0] - a[0]);
    const kept = found.slice(0, MOST_LABELS);
    labels.data = { x: kept.map((e) => e[2] / 3600), y: kept.map((e) => e[3]), text: kept.map((e) => e[4]),
      color: kept.map((e) => (run.isDark[run.heldJob[e[1]]] ? "#ffffff" : "#101418")) };
  }

  // Lines between nodes where there is room for them, and the numbers of as many nodes as can be told apart.
  function nodes(bottom, top, height) {
    const numbers = [], lines = [], overrides = new Map();
    const room = height / (top - bottom) * run.numRows / run.gpusPerNode.length, step = Math.max(1, Math.ceil(16 / room));
    let row = 0;
    run.gpusPerNode.forEach((gpus, node) => {
      if (room > LINE_HEIGHT) lines.push(run.numRows - row);
      if (node % step === 0) {
        const middle = run.numRows - row - gpus / 2;
        numbers.push(middle);
        overrides.set(middle, String(node));
      }
      row += gpus;
    });
    plot.left[0].major_label_overrides = overrides;
    plot.left[0].ticker.ticks = numbers;
    grid.ticker.ticks = lines;
  }

  function rowAt(y) {
    const row = run.numRows - 1 - Math.floor(y);
    return row >= 0 && row < run.numRows ? row : -1;
  }

  // What the tooltip says, part by part.
  function tell(x, y, part) {
    const row = rowAt(y), held = row < 0 ? -1 : data.holding(run, row, x * 3600);
    if (held < 0) return part === "job" ? nobody(row, x * 3600) : part === "gpus" && row >= 0 ? place(row) : "–";
    const job = run.heldJob[held], change = data.changeAt(run, job, x * 3600);
    if (part === "job") return `${run.jobs[job]} (${run.applications[run.jobApplication[job]]})`;
    if (part === "gpus") return `${place(row)}; it has ${format.plural(run.changeGpus[change], "GPU")}`;
    if (part === "batch") return format.number(run.changeBatch[change]);
    return `${format.hours(run.heldStart[held])} to ${format.hours(run.heldEnd[held])}`;
  }

  // Why nobody has a GPU: its node is down, or it is idle.
  function nobody(row, time) {
    const isIn = (start, i) => start <= time && time < run.downEnd[i] && run.downRow[i] <= row && row < run.downRow[i] + run.downRows[i];
    return run.downStart.some(isIn) ? "down" : "idle";
  }

  const place = (row) => `node ${run.nodeOfRow[row]}, GPU ${run.slotOfRow[row]}`;

  function tapped(x, y) {
    const row = rowAt(y);
    if (row < 0) return;
    polluxReport.page.moveTo(x * 3600);
    const held = data.holding(run, row, x * 3600), when = `At ${format.hours(x * 3600)}, ${place(row)}: `;
    if (held < 0) { format.fill("picked", `${when}${nobody(row, x * 3600)}.`); return; }
    const job = run.heldJob[held];
    const link = format.element("a", { href: format.jobLink(run, job) }, tell(x, y, "job"));
    format.fill("picked", when, link, `, ${format.plural(data.gpusAt(run, job, x * 3600), "GPU")}, batch size `,
      `${tell(x, y, "batch")}, held from ${tell(x, y, "held")}.`);
  }

  // Zoom and move by buttons, for whoever has no wheel or mouse.
  function move(action) {
    const { start, end } = plot.x_range, width = end - start, all = run ? hours.bounds[1] : end;
    const zoom = { in: 0.5, out: 2 }[action], shift = { earlier: -0.5, later: 0.5 }[action];
    if (zoom) {
      const size = Math.min(width * zoom, all), left = Math.max(0, Math.min((start + end - size) / 2, all - size));
      plot.x_range.setv({ start: left, end: left + size });
      const rows = plot.y_range.end - plot.y_range.start, tall = Math.min(Math.max(rows * zoom, 4), run.numRows);
      const top = Math.min(plot.y_range.end, run.numRows);
      const low = Math.max(0, top - tall);
      plot.y_range.setv({ start: low, end: low + tall });
    } else if (shift) {
      const left = Math.max(0, Math.min(start + shift * width, all - width));
      plot.x_range.setv({ start: left, end: left + width });
    } else if (action === "all") {
      plot.x_range.setv({ start: 0, end: all });
      plot.y_range.setv({ start: 0, end: run.numRows });
    } else {
      const rows = plot.y_range.end - plot.y_range.start, by = (action === "up" ? 0.5 : -0.5) * rows;
      const low = Math.max(0, Math.min(plot.y_range.start + by, run.numRows - rows));
      plot.y_range.setv({ start: low, end: low + rows });
    }
  }

  return { init, show, tell, tapped, move, schedule };
})();
