// A run's columns, decoded once, and what is looked up in them. Times are in seconds; -1 is a time that never came.
"use strict";
const polluxReport = {};

polluxReport.data = (() => {
  const decoded = new Map();

  async function inflate(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }

  // The layout is told in payload.py.
  function columns(buffer) {
    const types = { Float32Array, Float64Array, Uint8Array, Uint32Array };
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const base = Math.ceil((4 + length) / 8) * 8;
    const run = { ...head, numJobs: head.jobs.length };
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
  function byRow(run) {
    const size = run.gpusPerNode.reduce((sum, gpus) => sum + gpus, 0);
    const first = new Uint32Array(size + 1);
    for (let i = 0; i < run.heldRow.length; i++) {
      for (let row = run.heldRow[i]; row < run.heldRow[i] + run.heldRows[i]; row++) first[row + 1]++;
    }
    for (let row = 0; row < size; row++) first[row + 1] += first[row];
    const next = first.slice(), held = new Uint32Array(first[size]);
    for (let i = 0; i < run.heldRow.length; i++) {
      for (let row = run.heldRow[i]; row < run.heldRow[i] + run.heldRows[i]; row++) held[next[row]++] = i;
    }
    return { numRows: size, rowFirst: first, rowHeld: held };
  }

  function nodes(run) {
    const nodeOfRow = [], slotOfRow = [];
    run.gpusPerNode.forEach((gpus, node) => {
      for (let slot = 0; slot < gpus; slot++) { nodeOfRow.push(node); slotOfRow.push(slot); }
    });
    return { nodeOfRow, slotOfRow };
  }

  // Hue by application where there are a few, else by job; shade by job, so that neighbours differ.
  const HUES = [212, 28, 158, 318, 48, 266, 188, 0];
  function hue(run, job) {
    const few = run.applications.length > 1 && run.applications.length <= HUES.length;
    return few ? HUES[run.jobApplication[job]] : (job * 137.508) % 360;
  }
  function rgb(h, s, l) {
    const part = (n) => {
      const k = (n + h / 30) % 12;
      return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
    };
    return [part(0), part(8), part(4)];
  }
  function colors(run) {
    const css = [], red = [], dark = [];
    for (let job = 0; job < run.numJobs; job++) {
      const shade = 0.4 + 0.3 * ((job * 0.381966) % 1);
      const [r, g, b] = rgb(hue(run, job), 0.62, shade);
      css.push(`rgb(${r},${g},${b})`);
      red.push([r, g, b]);
      dark.push(0.299 * r + 0.587 * g + 0.114 * b < 140);
    }
    const legend = run.applications.map((name, i) => ({ name, color: `rgb(${rgb(HUES[i % HUES.length], 0.62, 0.52)})` }));
    const few = run.applications.length > 1 && run.applications.length <= HUES.length;
    return { color: css, rgb: red, isDark: dark, legend: few ? legend : [] };
  }

  // A run by its number, decoded when it is first asked for.
  function load(number) {
    if (!decoded.has(number)) {
      const text = document.getElementById(`run-${number}`).textContent;
      decoded.set(number, inflate(text).then((buffer) => {
        const run = columns(buffer);
        Object.assign(run, byRow(run), nodes(run), colors(run), { number });
        run.changeFirst = firsts(run.changeJob, run.numJobs);
        run.lifeFirst = firsts(run.lifeJob, run.numJobs);
        run.jobNumber = new Map(run.jobs.map((name, job) => [name, job]));
        return run;
      }));
    }
    return decoded.get(number);
  }

  // What decided about a run's jobs, decoded when a job is first shown; null where nothing is recorded.
  function loadReasons(number) {
    const key = `reasons-${number}`, text = document.getElementById(key);
    if (text && !decoded.has(key)) {
      decoded.set(key, inflate(text.textContent).then((buffer) => columns(buffer)));
    }
    return text ? decoded.get(key) : Promise.resolve(null);
  }

  // A job's reasons from one time until before another: the first, each of another kind than the one before, the last.
  function reasonsWithin(reasons, job, from, to) {
    const found = [];
    if (!reasons) return found;
    let i = lastUpTo(reasons.reasonJob, job - 0.5, 0, reasons.reasonJob.length) + 1;
    for (; i < reasons.reasonJob.length && reasons.reasonJob[i] === job; i++) {
      if (reasons.reasonTime[i] < from || reasons.reasonTime[i] >= to) continue;
      found.push({ time: reasons.reasonTime[i], kind: reasons.reasonKind[i], text: reasons.sentences[i] });
    }
    return found.filter((each, k) => k === 0 || k === found.length - 1 || each.kind !== found[k - 1].kind);
  }

  // Last index of a sorted stretch whose value is not above the wanted one, or the one before its first.
  function lastUpTo(values, wanted, from, to, at = (i) => values[i]) {
    let low = from, high = to;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at(middle) <= wanted) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  // The rectangle that covers a GPU at a time, or -1.
  function holding(run, row, time) {
    const from = run.rowFirst[row], to = run.rowFirst[row + 1];
    const place = lastUpTo(null, time, from, to, (i) => run.heldStart[run.rowHeld[i]]);
    if (place < from) return -1;
    const held = run.rowHeld[place];
    return time < run.heldEnd[held] ? held : -1;
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

  // Everyone at a moment: running and waiting jobs, GPUs held.
  function at(run, time) {
    const running = [], waiting = [];
    let gpus = 0;
    for (let job = 0; job < run.numJobs; job++) {
      if (!isActive(run, job, time)) continue;
      const held = gpusAt(run, job, time);
      gpus += held;
      (held ? running : waiting).push(job);
    }
    const round = lastUpTo(run.roundTime, time, 0, run.roundTime.length);
    return { running, waiting, gpus, efficiency: round < 0 ? NaN : run.roundEfficiency[round],
      goodput: round < 0 ? NaN : run.roundGoodput[round] };
  }

  return { load, loadReasons, reasonsWithin, holding, changeAt, gpusAt, at };
})();
