// The map: rows of GPUs or of jobs over time. It paints what is in sight, a cell at most a pixel wide, so that its cost
// does not depend on how long the run was. Rows are counted from the top.
"use strict";
polluxReport.map = (() => {
  const { format, data, chart: { LEFT, RIGHT } } = polluxReport;
  const HEIGHT = 440, MOST_LANES = 12, MOST_LABELS = 200, LABEL_HEIGHT = 13, LINE_HEIGHT = 8, UPRIGHT = 8, MANY = 512, FONT = "11px system-ui, sans-serif";
  const GPUS = "GPUs", SHARE = `share of ${polluxReport.metrics.overTime.gpus.title}`, OTHERS = { "jobs by submission": () => "", "jobs by user": (run, job) => run.users[job], "jobs by queue": (run, job) => run.queues[job] };
  // Maps of two runs share the axis of time and the choice of rows. Only the first says how to read it.
  function make(id, isFirst) {
    let canvas, axis, run = null, view, order, rows = { start: 0, end: 1 }, found = -1, cursor = null, mapHeight = HEIGHT;

    function init(shared) {
      canvas = document.getElementById(id);
      axis = shared;
      order = document.getElementById("map-of");
      order.addEventListener("change", arrange);
      new ResizeObserver(paint).observe(canvas.parentElement);
    }

    // Above 512 GPUs a map of holders is confetti: it opens with how full the nodes were.
    function show(next, height = HEIGHT) {
      mapHeight = height;
      if (next === null) { run = null; return; }
      if (!isFirst) { run = next; found = -1; arrange(); return; }
      const before = run && order.value, says = { "jobs by user": next.users.length, "jobs by queue": next.queues.length };
      run = next;
      found = -1;
      const names = [GPUS, SHARE, ...Object.keys(OTHERS).filter((name) => says[name] ?? true)];
      format.options(order, names);
      order.value = names.includes(before) && (before !== GPUS || run.numRows <= MANY) ? before : run.numRows > MANY ? SHARE : GPUS;
      arrange();
    }

    function arrange() {
      if (!run) return;
      cursor = null;
      view = order.value in OTHERS ? jobs((job) => OTHERS[order.value](run, job)) : gpus(order.value === SHARE);
      rows = { start: 0, end: view.numRows };
      if (isFirst) document.getElementById("rows").hidden = view.numRows <= 128;
      paint();
    }

    // Rows are GPUs; a band for each node. Where another type of GPU begins, a line says so, and its name stands upright.
    const gpus = (dense) => ({ ...run, dense, line: Math.max(...run.gpusPerNode), back: "--idle", groups: groups(),
      bands: run.firstRow.map((row, node) => [row, run.gpusPerNode[node], String(node), node && run.nodeTypes[node] !== run.nodeTypes[node - 1]]) });

    // Stretches of rows of one type of GPU, as [row, rows, type]; none where all are of one.
    function groups() {
      const found = [];
      run.firstRow.forEach((row, node) => {
        const name = run.nodeTypes[node], last = found.at(-1);
        if (last && last[2] === name) last[1] += run.gpusPerNode[node]; else found.push([row, run.gpusPerNode[node], name]);
      });
      return found.length > 1 ? found : [];
    }

    // Rows are jobs, those of one owner below each other; a stretch for each time on the same GPUs, and one for each wait.
    function jobs(owner) {
      const shown = [...run.jobs.keys()].filter((job) => run.jobSubmit[job] <= run.end).sort((a, b) => owner(a).localeCompare(owner(b)) || a - b);
      const made = { numRows: shown.length, rowJob: shown, heldStart: [], heldEnd: [], heldJob: [], heldRow: [], heldRows: [], isWait: [], isStart: [], present: [], downRow: [], bands: [], groups: [], back: "--surface" };
      const add = (from, to, job, row, isWait, isStart) => { made.heldStart.push(from); made.heldEnd.push(to); made.heldJob.push(job); made.heldRow.push(row); made.heldRows.push(1); made.isWait.push(isWait); made.isStart.push(isStart); };
      shown.forEach((job, row) => {
        const starts = data.startsOf(run, job).filter(([from, to]) => to > from);
        const runs = data.tenuresOf(run, job).map(([from, to]) => [starts.find(([start]) => start === from)?.[1] ?? from, to, false, false]).filter(([from, to]) => to > from);
        const stretches = [...data.waitsOf(run, job).map(([from, to]) => [from, to, true, false]), ...starts.map(([from, to]) => [from, to, false, true]), ...runs];
        stretches.sort((a, b) => a[0] - b[0]).forEach((each) => add(each[0], each[1], job, row, ...each.slice(2)));
        const name = owner(job) || run.jobs[job], last = made.bands.at(-1);
        if (owner(job) && last?.[2] === name) last[1]++; else made.bands.push([row, 1, name, false]);
      });
      return Object.assign(made, data.byRow(made, made.numRows));
    }

    function find(job) { found = job; paint(); }

    const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const parts = (color) => color.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));

    function paint() {
      const width = canvas.parentElement.clientWidth - LEFT - RIGHT, ratio = devicePixelRatio || 1;
      if (!run || width <= 0) return;
      canvas.width = (width + LEFT + RIGHT) * ratio;
      canvas.height = mapHeight * ratio;
      canvas.style.height = `${mapHeight}px`;
      const pen = canvas.getContext("2d"), { start: from, end: to } = axis;
      const top = Math.floor(rows.start), bottom = Math.min(Math.ceil(rows.end), view.numRows);
      const sight = { from, to, top, bottom, width, tall: mapHeight / (bottom - top), wide: width / (to - from) };
      pen.scale(ratio, ratio);
      pen.font = FONT;
      pen.save();
      pen.translate(LEFT, 0);
      pen.beginPath();
      pen.rect(0, 0, width, mapHeight);
      pen.clip();
      hatch(pen, sight);
      cells(pen, sight);
      if (!view.dense) names(pen, sight);
      pen.restore();
      bands(pen, sight);
      forks(pen, sight);
      ending(pen, sight);
      pointer(pen, sight);
    }

    // What comes after the end of the run is no part of it.
    function ending(pen, { from, to, width, wide }) {
      if (run.end >= to) return;
      const x = LEFT + Math.max(run.end - from, 0) * wide, text = `The run ended at ${format.clock(run.end)}, ${format.span(run.end - run.start)} after its first submission`, room = LEFT + width - x;
      pen.fillStyle = style("--muted");
      if (run.end >= from) pen.fillRect(x, 0, 1, mapHeight);
      if (pen.measureText(text).width + 16 > room) return;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(text, x + room / 2, mapHeight / 2);
    }

    function forks(pen, { from, to, wide }) {
      if (!run.fork || run.fork.time < from || run.fork.time > to) return;
      pen.strokeStyle = style("--accent");
      pen.lineWidth = 1.5;
      pen.setLineDash([6, 3]);
      pen.beginPath();
      pen.moveTo(LEFT + (run.fork.time - from) * wide, 0);
      pen.lineTo(LEFT + (run.fork.time - from) * wide, mapHeight);
      pen.stroke();
    }

    // Nodes that are not there, as nobody rents them or as they are down, are hatched.
    function hatch(pen, { from, to, top, bottom, width, tall, wide }) {
      pen.fillStyle = style(view.back);
      pen.fillRect(0, 0, width, mapHeight);
      pen.fillStyle = hatched(pen);
      if (run.end < to) pen.clearRect(Math.max(run.end - from, 0) * wide, 0, width, mapHeight);
      const absent = (start, end, y, high) => {
        const place = [(start - from) * wide, y, (end - start) * wide, high];
        pen.clearRect(...place);
        pen.fillRect(...place);
      };
      for (const [start, end, present] of view.present) {
        if (end >= from && start <= to && present < bottom) absent(start, end, Math.max(present - top, 0) * tall, mapHeight);
      }
      view.downRow.forEach((row, i) => absent(run.downStart[i], run.downEnd[i], (row - top) * tall, run.downRows[i] * tall));
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
      const rowsPerCell = Math.max(view.dense ? view.line : 1, Math.ceil((bottom - top) / mapHeight)), lines = Math.ceil((bottom - top) / rowsPerCell);
      // Of a GPU that jobs share, each has a part: lines within a GPU, where there is room for some.
      const lanes = view.heldOf && rowsPerCell === 1 ? Math.max(Math.min(MOST_LANES, Math.floor(mapHeight / lines)), 1) : 1;
      const columns = Math.round(width), cell = (to - from) / columns, image = new ImageData(columns, lines * lanes);
      const pixels = new Uint32Array(image.data.buffer), colors = { wait: parts(style("--hatch")), start: parts(style("--ink")), share: parts(style("--accent")) };
      const owner = new Int32Array(columns), longest = new Float64Array(columns), busy = new Float64Array(columns);
      for (let line = 0; line < lines * lanes; line++) {
        owner.fill(-1); longest.fill(0); busy.fill(0);
        const row = Math.floor(line / lanes), count = Math.min(rowsPerCell, bottom - top - row * rowsPerCell);
        const within = lanes > 1 ? (line % lanes + 0.5) / lanes : -1;
        for (let k = 0; k < count; k++) collect(top + row * rowsPerCell + k, within, { from, to, cell }, { owner, longest, busy });
        fillLine(pixels, line * columns, owner, busy, cell * count, count > 1 ? 0 : cell, from, colors);
      }
      const picture = new OffscreenCanvas(columns, lines * lanes);
      picture.getContext("2d").putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(picture, 0, 0, width, mapHeight * lines * rowsPerCell / (bottom - top));
      const each = view.rowJob ? "job" : "GPU";
      if (isFirst) format.fill("map-detail", view.dense
        ? `Shade: the ${SHARE}, of ${format.plural(rowsPerCell, "GPU")} a line.`
        : rowsPerCell > 1 ? `A line of the map stands for ${format.plural(rowsPerCell, each)}: the colour is the longest ${view.rowJob ? "running" : "holder's, paler where they are idle"}. Zoom in to see each ${each}.`
          : `A column stands for ${format.span(cell)}: the colour is the longest holder's${view.rowJob ? ", grey where the job waits, dark where it starts or restarts" : ""}.${view.heldOf ? " A GPU that jobs share is split among them." : ""}`);
    }

    // Who holds a row, or the part of it that is `within` (0 to 1; -1: all), longest in each cell, and how long anyone does.
    function collect(row, within, { from, to, cell }, { owner, longest, busy }) {
      const last = owner.length - 1;
      for (let i = firstInSight(row, from); i < view.rowFirst[row + 1]; i++) {
        const held = view.rowHeld[i], start = Math.max(view.heldStart[held], from), end = Math.min(view.heldEnd[held], to);
        if (start >= to) break;
        const among = data.partOf(view, held), weight = within < 0 ? 1 / among : 1;
        if (within >= 0 && Math.floor(within * among) !== view.heldPlace[held]) continue;
        const first = Math.min(Math.floor((start - from) / cell), last), final = Math.min(Math.floor((end - from) / cell), last);
        const isFound = view.dense && view.heldJob[held] === found;
        for (let column = first; column <= final; column++) {
          const overlap = Math.min(end, from + (column + 1) * cell) - Math.max(start, from + column * cell);
          busy[column] += overlap * weight;
          if (isFound || overlap > longest[column]) { longest[column] = isFound ? Infinity : overlap; owner[column] = held; }
        }
      }
    }

    const firstInSight = (row, from) => 1 + data.lastUpTo(null, from, view.rowFirst[row], view.rowFirst[row + 1], (i) => view.heldEnd[view.rowHeld[i]]);

    // Opaque where all of a cell is held; a lighter column marks where a new stretch begins, if stretches are wide enough.
    function fillLine(pixels, offset, owner, busy, whole, cell, from, colors) {
      for (let column = 0; column < owner.length; column++) {
        const held = owner[column];
        if (held < 0) continue;
        const isFound = view.heldJob[held] === found, isShare = view.dense && !isFound;
        const [r, g, b] = view.isWait?.[held] ? colors.wait : view.isStart?.[held] ? colors.start : isShare ? colors.share : run.rgb[view.heldJob[held]];
        const begins = cell > 0 && (column === 0 ? view.heldStart[held] >= from : owner[column - 1] !== held);
        const wide = !view.dense && !view.rowJob && begins && view.heldEnd[held] - view.heldStart[held] > 5 * cell;
        const share = Math.min(busy[column] / whole, 1);
        let alpha = wide ? 90 : Math.round(255 * (isShare ? share : view.dense ? 1 : 0.25 + 0.75 * share));
        if (found >= 0 && !isFound) alpha >>= 2;
        pixels[offset + column] = ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
      }
    }

    // Names on the rectangles that have room for one, the largest first.
    function names(pen, { from, to, top, bottom, tall, wide }) {
      const fitting = [];
      for (let i = 0; i < view.heldRow.length; i++) {
        const start = Math.max(view.heldStart[i], from), end = Math.min(view.heldEnd[i], to), among = data.partOf(view, i);
        if (end <= start || view.heldRows[i] * tall < LABEL_HEIGHT * among || (among > 1 && view.heldRows[i] > 1) || view.isWait?.[i] || view.isStart?.[i] || (found >= 0 && view.heldJob[i] !== found)) continue;
        const middle = view.heldRow[i] + view.heldRows[i] * ((view.heldPlace?.[i] ?? 0) + 0.5) / among, room = (end - start) * wide, job = view.heldJob[i];
        if (room > 30 && middle > top && middle < bottom) fitting.push([room * view.heldRows[i], room, job, (start - from) * wide, (middle - top) * tall]);
      }
      fitting.sort((a, b) => b[0] - a[0]);
      pen.textBaseline = "middle";
      for (const [, room, job, x, y] of fitting.slice(0, MOST_LABELS)) {
        if (pen.measureText(run.jobs[job]).width + 8 > room) continue;
        pen.fillStyle = run.ink[job];
        pen.fillText(run.jobs[job], x + 4, y);
      }
    }

    // Lines between bands where there is room for them, and the names of as many as can be told apart.
    function bands(pen, { top, bottom, width, tall }) {
      const line = style("--surface"), text = style("--muted");
      let last = -Infinity;
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const [row, count, name, isStrong] of view.bands) {
        const y = (row - top) * tall, middle = y + count * tall / 2;
        pen.fillStyle = line;
        if (row > top && row < bottom && count * tall > LINE_HEIGHT) pen.fillRect(LEFT, y - 0.5, width, 1);
        pen.fillStyle = text;
        if (isStrong && row > top && row < bottom) pen.fillRect(0, y - 1, LEFT + width, 2);
        if (middle > 7 && middle < mapHeight - 7 && middle - last >= 15) { pen.fillText(fitted(pen, name), LEFT - 6, middle); last = middle; }
      }
      pen.textAlign = "center";
      for (const [row, count, name] of view.groups) {
        const first = Math.max(row - top, 0) * tall, end = Math.min(row + count - top, bottom - top) * tall;
        if (end - first < pen.measureText(name).width + 6) continue;
        pen.save();
        pen.translate(UPRIGHT, (first + end) / 2);
        pen.rotate(-Math.PI / 2);
        pen.fillText(name, 0, 0);
        pen.restore();
      }
    }

    function fitted(pen, name) {
      let shown = name;
      while (shown && pen.measureText(shown).width > LEFT - 8) shown = `${shown.slice(0, shown.endsWith("…") ? -2 : -1)}…`;
      return shown;
    }

    // The row under a point of the window, -1 where there is none.
    function rowAt(event) {
      const box = canvas.getBoundingClientRect(), share = (event.clientY - box.top) / box.height;
      if (!run || share < 0 || share >= 1) return -1;
      return Math.min(Math.floor(Math.floor(rows.start) + share * (Math.ceil(rows.end) - Math.floor(rows.start))), view.numRows - 1);
    }

    const place = (row) => `node ${run.nodeOfRow[row]}, ${run.nodeTypes[run.nodeOfRow[row]] ?? "GPU"} ${run.slotOfRow[row]}`;
    const isThere = (row, time) => row < (run.present.findLast(([start]) => start <= time)?.[2] ?? 0);

    const isDown = (row, time) => data.outagesAt(run, time).some((i) => row >= run.downRow[i] && row < run.downRow[i] + run.downRows[i]);
    const without = (row, time) => !isThere(row, time) ? "not rented" : isDown(row, time) ? "down" : "idle";

    // What holds a GPU at a time, as rows of a box.
    function tellGpu(row, time) {
      const all = data.holders(run, row, time), [held] = all;
      if (time > run.end) return [["", "", `the run ended at ${format.clock(run.end)}`]];
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

    // What a job does at a time.
    function tellJob(job, time) {
      const gpus = data.gpusAt(run, job, time), isStarting = data.startsOf(run, job).some(([from, to]) => from <= time && time < to), isOver = time >= data.endOf(run, job);
      return [[run.color[job], run.jobs[job], run.applications[run.jobApplication[job]]], ...(run.users[job] ? [["", "user", run.users[job]]] : []),
        ["", "", time < run.jobSubmit[job] ? "not submitted yet" : isOver ? data.statusOf(run, job) : gpus ? `${isStarting ? "starts on" : "has"} ${format.plural(gpus, "GPU")}` : "waits"]];
    }

    const tell = (row, time) => (view.rowJob ? tellJob(view.rowJob[row], time) : tellGpu(row, time));

    // Say in the page what was clicked, for whoever has no pointer to hover with.
    function picked(row, time) {
      const when = `At ${format.clock(time)}, `, told = tell(row, time);
      const to = (job) => format.linkTo(run, job, {}, `${run.jobs[job]} (${run.applications[run.jobApplication[job]]})`);
      if (view.rowJob) { format.fill("picked", when, to(view.rowJob[row]), `: ${told.at(-1)[2]}.`); return; }
      const all = data.holders(run, row, time), where = `${place(row)}: `;
      if (!all.length) format.fill("picked", `${when}${where}${told[0][2]}.`);
      else if (told.length === all.length + 1) format.fill("picked", when, where, ...all.flatMap((each, i) => [i ? "; " : "", to(run.heldJob[each]), ` at ${beside(each)[2]}`]), ".");
      else format.fill("picked", when, where, to(run.heldJob[all[0]]), `; ${told[1][2]}, batch size ${told[2][2]}, held ${told[3][2]}.`);
    }

    // A row and a moment chosen by the keyboard: a frame around its place.
    function pointAt(change, time) {
      if (!run) return;
      const first = Math.floor(rows.start), last = Math.min(Math.ceil(rows.end), view.numRows) - 1;
      cursor = { row: Math.min(Math.max((cursor?.row ?? first) + change, first), last), time };
      paint();
      picked(cursor.row, time);
    }

    function pointer(pen, { from, to, top, tall, wide }) {
      if (!cursor || cursor.time < from || cursor.time > to || document.activeElement !== canvas) return;
      pen.setLineDash([]);
      pen.strokeStyle = style("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(LEFT + (cursor.time - from) * wide - 4, (cursor.row - top) * tall, 8, Math.max(tall, 4));
    }

    function move(action) {
      const size = rows.end - rows.start, tall = Math.min(Math.max(size * ({ fewer: 0.5, more: 2 }[action] ?? 1), 8), view.numRows);
      const by = { up: -0.5, down: 0.5 }[action] ?? 0, start = Math.max(0, Math.min(rows.start + by * size, view.numRows - tall));
      rows = { start, end: start + tall };
      paint();
    }

    // The rectangles in sight, as a table: job, first row, rows, from and to [s].
    function table() {
      const cells = Array.from(view.heldStart.keys()).filter((i) => view.heldEnd[i] > axis.start && view.heldStart[i] < axis.end);
      const state = (i) => (!view.rowJob ? "holds" : view.isWait[i] ? "waits" : view.isStart[i] ? "starts" : "runs");
      return [["job", "what", "first row", "rows", "from [s]", "to [s]"], ...cells.map((i) => [run.jobs[view.heldJob[i]], state(i), view.heldRow[i], view.heldRows[i], view.heldStart[i], view.heldEnd[i]])];
    }

    return { init, show, paint, find, rowAt, tell, tellGpu, picked, move, hatched, without, pointAt, table, canvas: () => canvas, run: () => run };
  }

  return { ...make("map", true), beside: make("map-beside", false) };
})();
