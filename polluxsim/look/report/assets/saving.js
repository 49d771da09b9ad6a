// Saves a panel: a picture as PNG or SVG, and its numbers as CSV, of what is in sight.
"use strict";
polluxReport.saving = (() => {
  const { format, curves } = polluxReport;
  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
  const HEAD = 24;
  let figures, map;

  function init(parts) {
    ({ figures, map } = parts);
    for (const select of document.querySelectorAll(".save")) {
      select.addEventListener("change", () => { const kind = select.value; select.value = ""; if (kind) save(select.closest("figure"), kind.toLowerCase()); });
    }
  }

  const found = (figure) => [...figures.values(), ...polluxReport.groups.figures()].find((each) => figure.contains(each.host));
  const mapIn = (figure) => [map, map.beside].find((each) => figure.contains(each.canvas()));
  const nameOf = (figure) => (figure.querySelector("[id]:not(select)")?.id ?? "panel").replace(/[^a-z0-9]+/gi, "-");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  async function save(figure, kind) {
    const blob = kind === "csv" ? new Blob([csv(rows(figure))], { type: "text/csv" })
      : kind === "svg" ? new Blob([picture(figure)], { type: "image/svg+xml" }) : await raster(figure);
    const link = format.element("a", { href: URL.createObjectURL(blob), download: `${nameOf(figure)}.${kind}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    return blob;
  }

  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
  const csv = (table) => table.map((row) => row.map(quoted).join(",")).join("\n") + "\n";

  // The numbers in sight. Curves have a row for each change; stacked groups one for each bin, dots one each.
  function rows(figure) {
    const chart = found(figure);
    if (!chart) return mapIn(figure).table();
    const lines = chart.lines.filter((line) => !line.hidden), { start, end } = chart.x;
    if (chart.areas.length) return [["from [s]", "to [s]", ...chart.areas.map(({ name }) => name)], ...Array.from(chart.areas[0].high, (_, i) => [chart.areas[0].x[i], chart.areas[0].x[i + 1], ...chart.areas.map(({ low, high }) => high[i] - low[i])])];
    if (chart.dots.length) return [["application", "run", "mean [s]", "10 % [s]", "90 % [s]"], ...chart.dots.map((dot) => [dot.name, dot.label, dot.x, dot.low, dot.high])];
    if (lines.every((line) => line.curve)) {
      const times = [...new Set([Math.max(start, 0), ...lines.flatMap(({ curve }) => curve.times.filter((time) => time >= start && time <= Math.min(end, curve.end)))])].sort((a, b) => a - b);
      return [["time [s]", ...lines.map(({ label }) => label)], ...times.map((time) => [time, ...lines.map(({ curve }) => (time > curve.end ? "" : curve.at(time)))])];
    }
    return [["run", "value", "share"], ...lines.flatMap(({ label, x, y }) => Array.from(y, (share, i) => [label, x[i], share]))];
  }

  // The figure with all its styles, its title and the names of its lines.
  function picture(figure) {
    const chart = found(figure);
    if (!chart) return mapPicture(mapIn(figure), figure);
    const own = chart.host.querySelector("svg"), copy = own.cloneNode(true), all = copy.querySelectorAll("*");
    own.querySelectorAll("*").forEach((element, i) => { const style = getComputedStyle(element); for (const name of STYLES) all[i].style.setProperty(name, style.getPropertyValue(name)); });
    return framed(figure, copy.innerHTML, own.clientWidth, chart.height, [...chart.lines.filter((line) => !line.hidden && line.label), ...chart.areas]);
  }

  function framed(figure, inner, width, height, named) {
    const text = (x, y, words, more = "") => `<text x="${x}" y="${y}" font-family="sans-serif" font-size="12" fill="${color("--ink")}"${more}>${escaped(words)}</text>`;
    let x = 58, legend = "";
    for (const each of named) {
      const words = each.label ?? each.name, shade = getComputedStyle(Object.assign(document.body.appendChild(format.element("i", { hidden: "", style: ["color", each.color] })))).color;
      document.body.lastChild.remove();
      legend += `<rect x="${x}" y="${HEAD + height}" width="10" height="10" fill="${shade}"/>${text(x + 14, HEAD + height + 9, words)}`;
      x += 34 + 6.6 * words.length;
    }
    const title = [...figure.querySelector("figcaption").childNodes].map((node) => (node.nodeName === "SELECT" ? (node.className === "save" ? "" : node.value) : node.textContent)).join(" ").replace(/\s+/g, " ").trim();
    const whole = height + HEAD + (named.length ? 18 : 4), wide = Math.max(width, x);
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${whole}" viewBox="0 0 ${wide} ${whole}"><rect width="100%" height="100%" fill="${color("--surface")}"/>${text(58, 16, title, ' font-weight="600"')}<g transform="translate(0 ${HEAD})">${inner}</g>${legend}</svg>`;
  }

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  // The map is pixels: the SVG holds them as a picture.
  function mapPicture(each, figure) {
    const canvas = each.canvas();
    return framed(figure, `<image href="${canvas.toDataURL()}" width="${canvas.clientWidth}" height="${canvas.clientHeight}"/>`, canvas.clientWidth, canvas.clientHeight, []);
  }

  async function raster(figure) {
    const image = new Image(), text = picture(figure);
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = format.element("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve) => { canvas.toBlob(resolve); });
  }

  return { init, rows, csv, picture, raster };
})();
