// A chart as a file: what is seen as PNG or SVG, its numbers as CSV.

import { colour, el, save, svg } from "./util.js";

const ROW = 20; // pixels of a line of the legend

export async function download(chart, kind) {
  const name = `sdfeel-${chart.titles.y}`.replaceAll(/[^\w-]+/g, "-");
  if (kind === "CSV") save(`${name}.csv`, new Blob([csv(chart)], { type: "text/csv" }));
  if (kind === "SVG") save(`${name}.svg`, new Blob([source(chart)], { type: "image/svg+xml" }));
  if (kind === "PNG") save(`${name}.png`, await png(chart));
}

// The picture without its marks, with a legend below.
function source({ picture, curves, width, height, left }) {
  const copy = picture.cloneNode(true);
  for (const mark of copy.querySelectorAll("[data-mark]")) mark.remove();
  const tall = height + ROW * curves.length;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", tall);
  copy.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  copy.firstElementChild.setAttribute("height", tall);
  curves.forEach((curve, n) => {
    const y = height + ROW * n + 8;
    copy.append(svg("line", { x1: left, x2: left + 34, y1: y, y2: y, stroke: colour(curve.look.colour), "stroke-width": 1.8, "stroke-dasharray": curve.look.dash || null }));
    copy.append(svg("text", { x: left + 42, y: y + 4, fill: colour("ink"), "font-family": "system-ui, sans-serif", "font-size": 13 }, curve.label));
  });
  return new XMLSerializer().serializeToString(copy);
}

// Every number as it stands in the run folder: JavaScript and Python write floats alike.
function csv({ titles, curves }) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [["run", titles.x, titles.y, "low", "high"].map(quoted).join(",")];
  for (const { label, x, y, low, high } of curves) {
    for (let n = 0; n < y.length; n += 1) {
      if (Number.isNaN(y.data[n])) continue;
      lines.push([quoted(label), x.data[n], y.data[n], low?.data[n] ?? "", high?.data[n] ?? ""].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

async function png(chart) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source(chart))}`;
  await image.decode();
  const canvas = el("canvas", { width: image.width * 2, height: image.height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
