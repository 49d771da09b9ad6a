// One axis of time for all that stands below each other: a crosshair with values, drags that zoom, clicks that set the moment.
"use strict";
polluxReport.timeline = (() => {
  const { format, chart: { LEFT, RIGHT, readout } } = polluxReport;
  const FAR = 5, EDGE = 10, LEAST = 1;

  // `axis` is shared by whatever `draw` draws; `tell` gives the rows of the box at the crosshair, `pick` takes a click.
  function link(host, { axis, draw, tell, pick, seen }) {
    const [now, cross, chosen] = ["now", "cross", "chosen"].map((name) => host.appendChild(format.element("div", { class: name })));
    const box = readout(host), strip = host.querySelector(".brush"), all = { start: axis.start, end: axis.end };
    let moment = null, from = null, due = false;

    const room = () => host.clientWidth - LEFT - RIGHT;
    const pixels = (time) => LEFT + (time - axis.start) / (axis.end - axis.start) * room();
    const timeAt = (event, range = axis) => {
      const share = (event.clientX - host.getBoundingClientRect().left - LEFT) / room();
      return range.start + Math.min(Math.max(share, 0), 1) * (range.end - range.start);
    };
    const isOutside = (event) => {
      const x = event.clientX - host.getBoundingClientRect().left;
      return x < LEFT - EDGE || x > host.clientWidth - RIGHT + EDGE || strip?.contains(event.target) || event.target.closest("select");
    };
    // Lines are placed by their share of the axis, so that they are right at every width, also on paper.
    const left = (time) => `calc(${LEFT}px + (100% - ${LEFT + RIGHT}px) * ${(time - axis.start) / (axis.end - axis.start)})`;
    function put(line, time, until = time) {
      line.hidden = time === null || until < axis.start || time > axis.end;
      if (line.hidden) return;
      line.style.left = left(time);
      if (until > time) line.style.width = `${pixels(until) - pixels(time)}px`;
    }

    // What is in sight changes at most once a frame.
    function look(start, end) {
      const size = Math.min(Math.max(end - start, LEAST), all.end - all.start), left = Math.min(Math.max(start, all.start), all.end - size);
      Object.assign(axis, { start: left, end: left + size });
      if (due) return;
      due = true;
      requestAnimationFrame(() => { due = false; draw(); place(); seen?.(); });
    }
    function place() {
      put(now, moment);
      cross.hidden = chosen.hidden = true;
      if (!strip) return;
      const share = (time) => `${100 * (time - all.start) / (all.end - all.start)}%`, view = strip.querySelector(".view");
      view.style.left = share(axis.start);
      view.style.right = `calc(100% - ${share(axis.end)})`;
    }
    const zoom = (factor, around = (axis.start + axis.end) / 2) =>
      look(around - (around - axis.start) * factor, around + (axis.end - around) * factor);
    const shift = (share) => look(axis.start + share * (axis.end - axis.start), axis.end + share * (axis.end - axis.start));
    const reset = () => look(all.start, all.end);

    host.addEventListener("pointermove", (event) => {
      if (isOutside(event) && from === null) { cross.hidden = true; box.hide(); return; }
      const time = timeAt(event);
      if (from !== null && Math.abs(pixels(time) - pixels(from)) > FAR) {
        host.setPointerCapture(event.pointerId);
        put(chosen, Math.min(from, time), Math.max(from, time));
      }
      put(cross, time);
      const { left: hostLeft, top } = host.getBoundingClientRect(), told = tell(time, event);
      box.show(event.clientX - hostLeft, event.clientY - top, ...told);
    });
    host.addEventListener("pointerleave", () => { cross.hidden = true; box.hide(); });
    host.addEventListener("pointerdown", (event) => { if (event.button === 0 && !isOutside(event)) from = timeAt(event); });
    host.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const time = timeAt(event), dragged = Math.abs(pixels(time) - pixels(from)) > FAR, start = from;
      from = null;
      chosen.hidden = true;
      if (dragged) { box.hide(); cross.hidden = true; }
      if (dragged) look(Math.min(start, time), Math.max(start, time)); else pick(time, event);
    });
    host.addEventListener("pointercancel", () => { from = null; chosen.hidden = true; });
    host.addEventListener("dblclick", (event) => { if (!strip?.contains(event.target)) reset(); });
    host.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
    }, { passive: false });
    new ResizeObserver(place).observe(host);

    // The strip below: drag the window to move it, its edges to widen it, elsewhere to choose anew.
    if (strip) {
      let grip = null;
      strip.addEventListener("pointerdown", (event) => {
        const time = timeAt(event, all), view = strip.querySelector(".view").getBoundingClientRect();
        const near = (x) => Math.abs(event.clientX - x) < EDGE;
        const whole = axis.start <= all.start && axis.end >= all.end;
        if (near(view.left)) grip = { fixed: axis.end };
        else if (near(view.right)) grip = { fixed: axis.start };
        else if (time > axis.start && time < axis.end && !whole) grip = { offset: time - axis.start };
        else grip = { fixed: time };
        strip.setPointerCapture(event.pointerId);
      });
      strip.addEventListener("pointermove", (event) => {
        if (grip === null) return;
        const time = timeAt(event, all), size = axis.end - axis.start;
        if (grip.fixed === undefined) look(time - grip.offset, time - grip.offset + size);
        else if (Math.abs(time - grip.fixed) > LEAST) look(Math.min(time, grip.fixed), Math.max(time, grip.fixed));
      });
      for (const name of ["pointerup", "pointercancel"]) strip.addEventListener(name, () => { grip = null; });
      strip.addEventListener("dblclick", reset);
    }
    place();
    return { zoom, shift, reset, look, mark(time) { moment = time; put(now, time); }, span(start, end) { Object.assign(all, { start, end }); look(start, end); } };
  }

  return { link };
})();
