// A run's columns, decoded once, and what is looked up in them. Times are in seconds; -1 is a time that never came.
"use strict";
// Titles, units and directions of metrics are those that polluxsim declares.
const polluxReport = { metrics: JSON.parse(document.getElementById("metrics").textContent) };

polluxReport.data = (() => {
  const decoded = new Map();

  async function unpack(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }

  // The layout is told in payload.py.
  function columns(buffer) {
    const types = { Float32Array, Float64Array, Uint8Array, Uint32Array };
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const base = Math.ceil((4 + length) / 8) * 8;
    const run = { ...head, numJobs: head.jobs?.length };
    for (const [name, [type, offset, count]] of Object.entries(head.columns)) {
      const key = name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
      run[key] = new types[type](buffer, base + offset, count);
    }
    return run;
  }

  // First entry of each key in a list that is sorted by key, and one past the last.
  function firsts(keys, size) {
    const first = new Uint32Array(size + 1);
    for (const key of keys) first[key + 1]++;
    for (let key = 0; key < size; key++) first[key + 1] += first[key];
    return first;
  }

  // The rectangles of each GPU in order of time, as entries `rowFirst[row]` to `rowFirst[row + 1]` of `rowHeld`.
  function byRow(run, size) {
    const each = (visit) => run.heldRow.forEach((top, i) => { for (let row = top; row < top + run.heldRows[i]; row++) visit(row, i); });
    const first = new Uint32Array(size + 1);
    each((row) => first[row + 1]++);
    for (let row = 0; row < size; row++) first[row + 1] += first[row];
    const next = first.slice(), held = new Uint32Array(first[size]);
    each((row, i) => { held[next[row]++] = i; });
    return { numRows: size, rowFirst: first, rowHeld: held };
  }

  function nodes(run) {
    const nodeOfRow = [], slotOfRow = [], firstRow = [];
    run.gpusPerNode.forEach((gpus, node) => {
      firstRow.push(nodeOfRow.length);
      for (let slot = 0; slot < gpus; slot++) { nodeOfRow.push(node); slotOfRow.push(slot); }
    });
    return { nodeOfRow, slotOfRow, firstRow };
  }

  // Colours by job, and whether black or white is read better on each.
  function colors(run) {
    const color = [], rgb = [], ink = [];
    for (const number of run.jobColor) {
      const parts = [number >> 16, (number >> 8) & 255, number & 255];
      const [r, g, b] = parts.map((part) => (part / 255) ** 2.2), luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
      color.push(`rgb(${parts})`);
      rgb.push(parts);
      ink.push(luminance > 0.18 ? "#000000" : "#ffffff");
    }
    return { color, rgb, ink };
  }

  // A run by its number, decoded when it is first asked for.
  function load(number) {
    if (!decoded.has(number)) {
      decoded.set(number, unpack(`run-${number}`).then((buffer) => {
        const run = columns(buffer);
        Object.assign(run, byRow(run, capacity(run)), nodes(run), colors(run), { number });
        run.present = present(run);
        run.heldGpus = Array.from(run.heldRows, (rows, i) => rows / partOf(run, i));
        run.changeFirst = firsts(run.changeJob, run.numJobs);
        run.lifeFirst = firsts(run.lifeJob, run.numJobs);
        run.saveFirst = firsts(run.saveJob, run.numJobs);
        run.jobNumber = new Map(run.jobs.map((name, job) => [name, job]));
        return run;
      }));
    }
    return decoded.get(number);
  }

  // What decided about a run's jobs, decoded when a job is first shown; null where nothing is recorded.
  function loadReasons(number) {
    const key = `reasons-${number}`;
    if (document.getElementById(key) === null) return Promise.resolve(null);
    if (!decoded.has(key)) decoded.set(key, unpack(key).then(columns));
    return decoded.get(key);
  }

  const loadCharts = () => unpack("charts").then(columns);

  // A job's reasons from one time until before another: the first, each of another kind than the one before, the last.
  function reasonsWithin(reasons, job, from, to) {
    const found = [];
    if (!reasons) return found;
    let i = lastUpTo(reasons.reasonJob, job - 0.5) + 1;
    for (; i < reasons.reasonJob.length && reasons.reasonJob[i] === job; i++) {
      if (reasons.reasonTime[i] < from || reasons.reasonTime[i] >= to) continue;
      found.push({ time: reasons.reasonTime[i], kind: reasons.reasonKind[i], text: reasons.sentences[i] });
    }
    return found.filter((each, k) => k === 0 || k === found.length - 1 || each.kind !== found[k - 1].kind);
  }

  // Last index of a sorted stretch whose value is not above the wanted one, or the one before its first.
  function lastUpTo(values, wanted, from = 0, to = values.length, at = (i) => values[i]) {
    let low = from, high = to;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at(middle) <= wanted) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  // Among how many jobs a rectangle's GPUs are shared.
  const partOf = (run, held) => run.heldOf?.[held] ?? 1;

  // The rectangle that covers a GPU at a time, or -1; the last of them where jobs share it.
  function holding(run, row, time) {
    const from = run.rowFirst[row], to = run.rowFirst[row + 1];
    const place = lastUpTo(null, time, from, to, (i) => run.heldStart[run.rowHeld[i]]);
    if (place < from) return -1;
    const held = run.rowHeld[place];
    return time < run.heldEnd[held] ? held : -1;
  }

  // All rectangles that cover a GPU at a time, from the first part of it to the last.
  function holders(run, row, time) {
    const found = [], last = holding(run, row, time), place = last < 0 ? -1 : run.rowHeld.indexOf(last, run.rowFirst[row]);
    for (let i = partOf(run, last) - 1; last >= 0 && i >= 0; i--) found.push(run.rowHeld[place - i]);
    return found.sort((a, b) => (run.heldPlace?.[a] ?? 0) - (run.heldPlace?.[b] ?? 0));
  }

  // The change that says what a job has at a time, or -1.
  function changeAt(run, job, time) {
    const from = run.changeFirst[job], place = lastUpTo(run.changeTime, time, from, run.changeFirst[job + 1]);
    return place < from ? -1 : place;
  }

  function gpusAt(run, job, time) {
    const change = changeAt(run, job, time);
    return change < 0 ? 0 : run.changeGpus[change];
  }

  function isActive(run, job, time) {
    return run.jobSubmit[job] <= time && (run.jobEnd[job] < 0 ? time <= run.end : time < run.jobEnd[job]);
  }

  // The jobs that run and wait at a moment, the GPUs held, the GPUs of the nodes that are up, and the nodes that are down.
  function at(run, time) {
    const running = [], waiting = [];
    let gpus = 0;
    for (let job = 0; job < run.numJobs; job++) {
      if (!isActive(run, job, time)) continue;
      const held = gpusAt(run, job, time);
      if (!run.heldOf) gpus += held;
      (held ? running : waiting).push(job);
    }
    for (let row = 0; run.heldOf && row < run.numRows; row++) gpus += holding(run, row, time) >= 0;
    const round = lastUpTo(run.roundTime, time), nodes = nodesAt(run, round), down = outagesAt(run, time).filter((i) => run.nodeOfRow[run.downRow[i]] < nodes);
    return { running, waiting, gpus, efficiency: round < 0 ? NaN : run.roundEfficiency[round], price: round < 0 ? 0 : run.roundPrice[round], nodes,
      nodesDown: down.length, capacity: down.reduce((sum, i) => sum - run.downRows[i], capacity(run, nodes)) };
  }

  // The outages at a time, as places in the columns of outages.
  const outagesAt = (run, time) => Array.from(run.downRow.keys()).filter((i) => run.downStart[i] <= time && time < run.downEnd[i]);

  // What happened to the cluster and lasts at a time, in sentences: outages of nodes, and the fork.
  const eventsAt = (run, time) => [...outagesAt(run, time).map((i) => run.downs[i]), ...(run.fork && run.fork.time <= time ? [run.fork.text] : [])];

  // Nodes that are up after a round: all of them, but where a policy rents them. Those are always the first ones.
  const nodesAt = (run, round) => run.isRented ? run.roundNodes[Math.max(round, 0)] ?? 0 : run.gpusPerNode.length;
  const capacity = (run, nodes) => run.gpusPerNode.slice(0, nodes).reduce((sum, gpus) => sum + gpus, 0);

  // When each number of nodes was up: [from, to, GPUs that are there], in order of time.
  function present(run) {
    const found = [];
    if (!run.isRented) return [[0, run.end, run.numRows]];
    for (let i = 0; i < run.roundTime.length; i++) {
      const rows = capacity(run, run.roundNodes[i]), last = found[found.length - 1];
      if (last && last[2] === rows) continue;
      if (last) last[1] = run.roundTime[i];
      found.push([i ? run.roundTime[i] : 0, run.end, rows]);
    }
    return found;
  }

  const endOf = (run, job) => (run.jobEnd[job] < 0 ? run.end : run.jobEnd[job]);
  const statusOf = (run, job) => run.statuses[run.jobStatus[job]];
  const wasSubmitted = (run, job) => statusOf(run, job) !== "never submitted";
  // Whether a job's life is as long as it took: of one that ended otherwise, this is what it lasted at least.
  const isComplete = (run, job) => statusOf(run, job) === "completed";

  const changesOf = (run, job) => Array.from({ length: run.changeFirst[job + 1] - run.changeFirst[job] }, (_, i) => run.changeFirst[job] + i);

  // Stretches of time in which a job holds no GPU, from submission to its end.
  function waitsOf(run, job) {
    const found = [], end = endOf(run, job);
    let since = run.jobSubmit[job];
    for (const i of changesOf(run, job)) {
      const has = run.changeGpus[i] > 0;
      if (has && since !== null) { if (run.changeTime[i] > since) found.push([since, run.changeTime[i]]); since = null; }
      if (!has && since === null) since = run.changeTime[i];
    }
    if (since !== null && since < end) found.push([since, end]);
    return found;
  }

  const waited = (run, job) => waitsOf(run, job).reduce((sum, [from, to]) => sum + to - from, 0);

  // Times in which a job holds the same GPUs: from, to, and the change that gave it these.
  function tenuresOf(run, job) {
    const moves = changesOf(run, job).filter((i) => run.changeMoved[i] || !run.changeGpus[i]);
    return moves.map((i, k) => [run.changeTime[i], k + 1 < moves.length ? run.changeTime[moves[k + 1]] : endOf(run, job), i]).filter(([, , i]) => run.changeGpus[i]);
  }

  // Starts and restarts of a job: from when to when it holds GPUs and does not train yet.
  const startsOf = (run, job) => tenuresOf(run, job).map(([from, to, i]) => [from, Math.min(from + run.changeDelay[i], to)]);

  // When a job stopped for checkpoints.
  function checkpointsOf(run, job) {
    const found = Array.from(run.saveTime.subarray(run.saveFirst[job], run.saveFirst[job + 1]));
    for (const [, to, i] of tenuresOf(run, job)) for (let time = run.changeSave[i]; time < to; time += run.changeCycle[i]) found.push(time);
    return found;
  }

  // Nodes that are not there: from when to when, and which, as nobody rents them or as they are down.
  function absences(run) {
    const found = run.present.flatMap(([from, to, rows]) => run.gpusPerNode.map((_, node) => node).filter((node) => run.firstRow[node] >= rows).map((node) => [from, to, node]));
    run.downRow.forEach((row, i) => found.push([run.downStart[i], run.downEnd[i], run.nodeOfRow[row]]));
    return found;
  }

  // How many GPUs of a node are free from a time on, more or less: [time, node, change] in order of time, more first.
  function turnover(run) {
    const events = [];
    const taken = (from, to, node, gpus) => events.push([from, node, -gpus], [to, node, gpus]);
    run.heldStart.forEach((start, i) => taken(start, run.heldEnd[i], run.nodeOfRow[run.heldRow[i]], run.heldGpus[i]));
    for (const [from, to, node] of absences(run)) taken(from, to, node, run.gpusPerNode[node]);
    return events.sort((a, b) => a[0] - b[0] || b[2] - a[2]);
  }

  // GPUs that were left free at each round, and so until the next, as steps.
  function freeGpus(run) {
    const events = turnover(run);
    let free = run.numRows, next = 0;
    const value = run.roundTime.map((time) => { while (next < events.length && events[next][0] <= time) free += events[next++][2]; return Math.round(free); });
    return { time: run.roundTime, value };
  }

  // For how long, up to a time, steps have been below a value.
  function timeBelow({ time, value }, wanted) {
    const sum = new Float64Array(time.length);
    for (let i = 1; i < time.length; i++) sum[i] = sum[i - 1] + (value[i - 1] < wanted ? time[i] - time[i - 1] : 0);
    return (moment) => {
      const i = lastUpTo(time, moment);
      return i < 0 ? 0 : sum[i] + (value[i] < wanted ? moment - time[i] : 0);
    };
  }

  // How fast a job was beside whom, stretch by stretch, where jobs share GPUs: [start, end, speed, jobs].
  function sharedOf(run, job) {
    const found = new Map();
    for (let i = 0; run.heldOf && i < run.heldJob.length; i++) {
      if (run.heldJob[i] !== job) continue;
      for (let row = run.heldRow[i]; row < run.heldRow[i] + run.heldRows[i]; row++) for (const other of holders(run, row, run.heldStart[i])) {
        if (!found.has(run.heldStart[i])) found.set(run.heldStart[i], [run.heldStart[i], run.heldEnd[i], run.heldSpeed[i], new Set()]);
        if (run.heldJob[other] !== job) found.get(run.heldStart[i])[3].add(run.heldJob[other]);
      }
    }
    return [...found.values()];
  }

  return { load, byRow, partOf, holders, sharedOf, tenuresOf, startsOf, checkpointsOf, turnover, freeGpus, timeBelow, changesOf, waitsOf, waited, loadReasons, loadCharts, reasonsWithin, holding, changeAt, gpusAt, at, outagesAt, eventsAt, present, endOf, statusOf, wasSubmitted, isComplete,
    lastUpTo };
})();
