// The map of GPUs over time: paints what is in sight, a cell at most a pixel wide, so that its cost does not depend on
// how long the run was. GPUs are rows, counted from the top.
"use strict";
polluxReport.map = (() => {
  const { format, data, chart: { LEFT, RIGHT } } = polluxReport;
  const HEIGHT = 440, MOST_LANES = 12, MOST_LABELS = 200, LABEL_HEIGHT = 13, LINE_HEIGHT = 8, FONT = "11px system-ui, sans-serif";
  let canvas, axis, run, rows = { start: 0, end: 1 }, found = -1;

  function init(shared) {
    canvas = document.getElementById("map");
    axis = shared;
    new ResizeObserver(paint).observe(canvas.parentElement);
  }

  function show(next) { run = next; found = -1; rows = { start: 0, end: run.numRows }; paint(); }
  function find(job) { found = job; paint(); }

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function paint() {
    const width = canvas.parentElement.clientWidth - LEFT - RIGHT, ratio = devicePixelRatio || 1;
    if (!run || width <= 0) return;
    canvas.width = (width + LEFT + RIGHT) * ratio;
    canvas.height = HEIGHT * ratio;
    canvas.style.height = `${HEIGHT}px`;
    const pen = canvas.getContext("2d"), { start: from, end: to } = axis;
    const top = Math.floor(rows.start), bottom = Math.min(Math.ceil(rows.end), run.numRows);
    const sight = { from, to, top, bottom, width, tall: HEIGHT / (bottom - top), wide: width / (to - from) };
    pen.scale(ratio, ratio);
    pen.font = FONT;
    pen.save();
    pen.translate(LEFT, 0);
    pen.beginPath();
    pen.rect(0, 0, width, HEIGHT);
    pen.clip();
    hatch(pen, sight);
    cells(pen, sight);
    names(pen, sight);
    pen.restore();
    nodes(pen, sight);
  }

  // Nodes that are not there, as nobody rents them or as they are down, are hatched.
  function hatch(pen, { from, to, top, bottom, width, tall, wide }) {
    pen.fillStyle = style("--idle");
    pen.fillRect(0, 0, width, HEIGHT);
    pen.fillStyle = hatched(pen);
    for (const [start, end, present] of run.present) {
      if (end < from || start > to || present >= bottom) continue;
      pen.clearRect((start - from) * wide, Math.max(present - top, 0) * tall, (end - start) * wide, HEIGHT);
      pen.fillRect((start - from) * wide, Math.max(present - top, 0) * tall, (end - start) * wide, HEIGHT);
    }
    run.downRow.forEach((row, i) => {
      const place = [(run.downStart[i] - from) * wide, (row - top) * tall, (run.downEnd[i] - run.downStart[i]) * wide, run.downRows[i] * tall];
      pen.clearRect(...place);
      pen.fillRect(...place);
    });
  }

  function hatched(pen) {
    const tile = new OffscreenCanvas(6, 6), line = tile.getContext("2d");
    line.strokeStyle = style("--hatch");
    line.beginPath();
    for (const x of [-3, 3, 9]) { line.moveTo(x - 3, 9); line.lineTo(x + 9, -3); }
    line.stroke();
    return pen.createPattern(tile, "repeat");
  }

  function cells(pen, { from, to, top, bottom, width }) {
    const gpusPerCell = Math.max(1, Math.ceil((bottom - top) / HEIGHT)), lines = Math.ceil((bottom - top) / gpusPerCell);
    // Of a GPU that jobs share, each has a part: lines within a GPU, where there is room for some.
    const lanes = run.heldOf && gpusPerCell === 1 ? Math.max(Math.min(MOST_LANES, Math.floor(HEIGHT / lines)), 1) : 1;
    const columns = Math.round(width), cell = (to - from) / columns, image = new ImageData(columns, lines * lanes);
    const pixels = new Uint32Array(image.data.buffer);
    const owner = new Int32Array(columns), longest = new Float64Array(columns), busy = new Float64Array(columns);
    for (let line = 0; line < lines * lanes; line++) {
      owner.fill(-1); longest.fill(0); busy.fill(0);
      const gpu = Math.floor(line / lanes), count = Math.min(gpusPerCell, bottom - top - gpu * gpusPerCell);
      const within = lanes > 1 ? (line % lanes + 0.5) / lanes : -1;
      for (let k = 0; k < count; k++) collect(top + gpu * gpusPerCell + k, within, { from, to, cell }, { owner, longest, busy });
      fillLine(pixels, line * columns, owner, busy, cell * count, count > 1 ? 0 : cell, from);
    }
    const picture = new OffscreenCanvas(columns, lines * lanes);
    picture.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(picture, 0, 0, width, HEIGHT * lines * gpusPerCell / (bottom - top));
    document.getElementById("map-detail").textContent = gpusPerCell > 1
      ? `A line of the map stands for ${gpusPerCell} GPUs: the colour is the longest holder's, paler where they are idle. Zoom in to see each GPU.`
      : `A column stands for ${format.span(cell)}: the colour is the longest holder's.${run.heldOf ? " A GPU that jobs share is split among them." : ""}`;
  }

  // Who holds a GPU, or the part of it that is `within` (0 to 1; -1: all), longest in each cell, and how long anyone does.
  function collect(row, within, { from, to, cell }, { owner, longest, busy }) {
    const last = owner.length - 1;
    for (let i = firstInSight(row, from); i < run.rowFirst[row + 1]; i++) {
      const held = run.rowHeld[i], start = Math.max(run.heldStart[held], from), end = Math.min(run.heldEnd[held], to);
      if (start >= to) break;
      const parts = data.partOf(run, held), weight = within < 0 ? 1 / parts : 1;
      if (within >= 0 && Math.floor(within * parts) !== (run.heldPlace[held])) continue;
      const first = Math.min(Math.floor((start - from) / cell), last), final = Math.min(Math.floor((end - from) / cell), last);
      for (let column = first; column <= final; column++) {
        const overlap = Math.min(end, from + (column + 1) * cell) - Math.max(start, from + column * cell);
        busy[column] += overlap * weight;
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
      let alpha = wide ? 90 : Math.round(255 * (0.25 + 0.75 * Math.min(busy[column] / whole, 1)));
      if (found >= 0 && run.heldJob[held] !== found) alpha >>= 2;
      pixels[offset + column] = ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
    }
  }

  // Names on the rectangles that have room for one, the largest first.
  function names(pen, { from, to, top, bottom, tall, wide }) {
    const fitting = [];
    for (let i = 0; i < run.heldRow.length; i++) {
      const start = Math.max(run.heldStart[i], from), end = Math.min(run.heldEnd[i], to);
      const parts = data.partOf(run, i);
      if (end <= start || run.heldRows[i] * tall < LABEL_HEIGHT * parts || (parts > 1 && run.heldRows[i] > 1) || (found >= 0 && run.heldJob[i] !== found)) continue;
      const middle = run.heldRow[i] + run.heldRows[i] * ((run.heldPlace?.[i] ?? 0) + 0.5) / parts, room = (end - start) * wide, job = run.heldJob[i];
      if (room > 30 && middle > top && middle < bottom) fitting.push([room * run.heldRows[i], room, job, (start - from) * wide, (middle - top) * tall]);
    }
    fitting.sort((a, b) => b[0] - a[0]);
    pen.textBaseline = "middle";
    for (const [, room, job, x, y] of fitting.slice(0, MOST_LABELS)) {
      if (pen.measureText(run.jobs[job]).width + 8 > room) continue;
      pen.fillStyle = run.ink[job];
      pen.fillText(run.jobs[job], x + 4, y);
    }
  }

  // Lines between nodes where there is room for them, and the numbers of as many nodes as can be told apart.
  function nodes(pen, { top, bottom, width, tall }) {
    const line = style("--surface"), text = style("--muted");
    let row = 0, last = -Infinity;
    pen.textAlign = "right";
    run.gpusPerNode.forEach((gpus, node) => {
      const y = (row - top) * tall, middle = y + gpus * tall / 2;
      pen.fillStyle = line;
      if (row > top && row < bottom && gpus * tall > LINE_HEIGHT) pen.fillRect(LEFT, y - 0.5, width, 1);
      pen.fillStyle = text;
      // Where another type of GPU begins, a line that says so.
      if (node && run.nodeTypes[node] !== run.nodeTypes[node - 1] && row > top && row < bottom) pen.fillRect(0, y - 1, LEFT + width, 2);
      if (middle > 7 && middle < HEIGHT - 7 && middle - last >= 15) { pen.fillText(String(node), LEFT - 8, middle); last = middle; }
      row += gpus;
    });
  }

  // The GPU under a point of the window, -1 where there is none.
  function rowAt(event) {
    const box = canvas.getBoundingClientRect(), share = (event.clientY - box.top) / box.height;
    if (!run || share < 0 || share >= 1) return -1;
    return Math.min(Math.floor(Math.floor(rows.start) + share * (Math.ceil(rows.end) - Math.floor(rows.start))), run.numRows - 1);
  }

  const place = (row) => `node ${run.nodeOfRow[row]}, ${run.nodeTypes[run.nodeOfRow[row]] ?? "GPU"} ${run.slotOfRow[row]}`;
  const isThere = (row, time) => row < (run.present.findLast(([start]) => start <= time)?.[2] ?? 0);

  const isDown = (row, time) => run.downRow.some((first, i) =>
    row >= first && row < first + run.downRows[i] && time >= run.downStart[i] && time < run.downEnd[i]);
  const without = (row, time) => !isThere(row, time) ? "not rented" : isDown(row, time) ? "down" : "idle";

  // What holds a GPU at a time, as rows of a box.
  function tell(row, time) {
    const all = data.holders(run, row, time), [held] = all;
    if (!all.length) return [["", place(row), without(row, time)]];
    if (all.length > 1 || run.heldSpeed?.[held] < 1) return [["", place(row), `${format.plural(all.length, "job")} on it`], ...all.map((each) => beside(each))];
    const job = run.heldJob[held], change = data.changeAt(run, job, time);
    return [[run.color[job], run.jobs[job], run.applications[run.jobApplication[job]]],
      ["", place(row), `it has ${format.plural(run.changeGpus[change], "GPU")}`],
      ["", "batch size", format.number(run.changeBatch[change])],
      ["", "held", `${format.clock(run.heldPlaced?.[held] ?? run.heldStart[held])} to ${format.clock(run.heldEnd[held])}`]];
  }

  // One of those who share a GPU: its name, its speed over that alone, and since when it has been so.
  const beside = (held) => [run.color[run.heldJob[held]], run.jobs[run.heldJob[held]],
    `${format.percent(run.heldSpeed[held])} of its speed since ${format.clock(run.heldStart[held])}, here since ${format.clock(run.heldPlaced[held])}`];

  // Say in the page what was clicked, for whoever has no pointer to hover with.
  function picked(row, time) {
    const all = data.holders(run, row, time), when = `At ${format.clock(time)}, ${place(row)}: `, rows = tell(row, time);
    if (!all.length) { format.fill("picked", `${when}${rows[0][2]}.`); return; }
    const to = (job) => format.element("a", { href: format.jobLink(run, job) }, `${run.jobs[job]} (${run.applications[run.jobApplication[job]]})`);
    if (rows.length === all.length + 1) {
      format.fill("picked", when, ...all.flatMap((each, i) => [i ? "; " : "", to(run.heldJob[each]), ` at ${beside(each)[2]}`]), ".");
      return;
    }
    const job = run.heldJob[all[0]], [, [, , has], [, , batch], [, , period]] = rows, link = to(job);
    format.fill("picked", when, link, `; ${has}, batch size ${batch}, held ${period}.`);
  }

  function move(action) {
    const size = rows.end - rows.start, tall = Math.min(Math.max(size * ({ fewer: 0.5, more: 2 }[action] ?? 1), 8), run.numRows);
    const by = { up: -0.5, down: 0.5 }[action] ?? 0, start = Math.max(0, Math.min(rows.start + by * size, run.numRows - tall));
    rows = { start, end: start + tall };
    paint();
  }

  return { init, show, paint, find, rowAt, tell, picked, move, isThere };
})();
