// Values over time, exact: steps from each change until the next. Bins are made for what is in sight, when it is drawn.
"use strict";
polluxReport.curves = (() => {
  const { data } = polluxReport;

  // A curve from changes, [time, change], in any order. It ends with its run.
  function ofChanges(changes, end) {
    const sorted = changes.sort((a, b) => a[0] - b[0]), times = [], values = [];
    let now = 0;
    for (const [time, change] of sorted) {
      now += change;
      if (times.at(-1) === time) values[values.length - 1] = now; else { times.push(time); values.push(now); }
    }
    return steps(times, values.map((value) => Math.round(value * 1e6) / 1e6), end);
  }

  // A curve of steps: 0 before the first time.
  function steps(times, values, end) {
    const area = new Float64Array(times.length);
    for (let i = 1; i < times.length; i++) area[i] = area[i - 1] + values[i - 1] * (times[i] - times[i - 1]);
    const at = (time) => { const i = data.lastUpTo(times, time); return i < 0 ? 0 : values[i]; };
    const areaTo = (time) => { const i = data.lastUpTo(times, time); return i < 0 ? 0 : area[i] + values[i] * (time - times[i]); };
    return { times, end, at, mean: (from, to) => (areaTo(to) - areaTo(from)) / (to - from), most: values.reduce((a, b) => Math.max(a, b), 0) };
  }

  // The mean of a curve weighted by another: no value where the weight is 0.
  function weighted(values, weights) {
    const times = union(values.times, weights.times);
    const product = steps(times, times.map((time) => values.at(time) * weights.at(time)), weights.end);
    return { times, end: weights.end, most: values.most, at: (time) => (weights.at(time) > 0 ? values.at(time) : NaN),
      mean: (from, to) => { const weight = weights.mean(from, to); return weight > 1e-9 ? product.mean(from, to) / weight : NaN; } };
  }

  // What all nodes cost from the first submission up to a time: straight from each round to the next.
  function cost(run) {
    const { roundTime: times, roundCost: values, roundPrice: prices } = run;
    const at = (time) => {
      const i = data.lastUpTo(times, time);
      if (i >= 0) return values[i] + prices[i] * (time - times[i]) / 3600;
      return times.length && times[0] > run.start ? values[0] * Math.max(time - run.start, 0) / (times[0] - run.start) : 0;
    };
    return { times: Array.from(times), end: run.end, at, isStraight: true, most: at(run.end), mean: (from, to) => at((from + to) / 2) };
  }

  const union = (a, b) => [...new Set([...a, ...b])].sort((x, y) => x - y);

  // A curve minus another, while both runs last.
  function difference(a, b) {
    const times = union(a.times, b.times), end = Math.min(a.end, b.end), at = (time) => a.at(time) - b.at(time);
    const most = times.reduce((sum, time) => (time <= end ? Math.max(sum, Math.abs(at(time)) || 0) : sum), 0);
    return { times, end, at, most, isStraight: a.isStraight, mean: (from, to) => a.mean(from, to) - b.mean(from, to) };
  }

  function held(run, isCounted = () => true) {
    const changes = [];
    run.heldStart.forEach((start, i) => { if (isCounted(run.heldRow[i])) changes.push([start, run.heldGpus[i]], [run.heldEnd[i], -run.heldGpus[i]]); });
    return ofChanges(changes, run.end);
  }

  function queue(run) {
    const changes = [];
    for (let job = 0; job < run.numJobs; job++) for (const [from, to] of data.waitsOf(run, job)) if (from < run.end) changes.push([from, 1], [to, -1]);
    return ofChanges(changes, run.end);
  }

  const ofRounds = (run, column) => steps(Array.from(run.roundTime), Array.from(column), run.end);

  const KINDS = {
    gpus: held, queue, cost, nodes: (run) => ofRounds(run, run.roundNodes),
    efficiency: (run) => weighted(ofRounds(run, run.roundEfficiency), held(run)),
  };

  // The curve of a panel by its name, of one run.
  const of = (run, name) => KINDS[name]?.(run) ?? held(run, (row) => run.nodeTypes[run.nodeOfRow[row]] === name.slice("gpus of ".length));

  // Corners of a curve in sight: every change if they are few, else a mean for each bin, of at most the width of a pixel.
  function seen(curve, from, to, pixels) {
    const end = Math.min(to, curve.end), first = Math.max(from, 0), low = data.lastUpTo(curve.times, first) + 1, high = data.lastUpTo(curve.times, end) + 1;
    if (!(end > first)) return { x: [], y: [] };
    if (high - low <= pixels) {
      const x = [first, ...curve.times.slice(low, high)], y = x.map(curve.at);
      return curve.isStraight ? { x: [...x, end], y: [...y, curve.at(end)] } : { x: [...x, end], y };
    }
    const count = Math.max(Math.round(pixels * (end - first) / (to - from)), 1), x = Array.from({ length: count + 1 }, (_, i) => first + i * (end - first) / count);
    return { x, y: curve.isStraight ? x.map(curve.at) : x.slice(1).map((right, i) => curve.mean(x[i], right)) };
  }

  return { of, ofChanges, union, seen, difference };
})();
