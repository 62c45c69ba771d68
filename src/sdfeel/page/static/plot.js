// A chart of curves in SVG: axes, bands, hover, zoom by dragging, keys, and files of what is seen.

import { download } from "./files.js";
import { colour, el, hideTip, logTicks, short, showTip, svg, ticks, zoom } from "./util.js";
import { isShare, percent, three, titleOf } from "./units.js";

const TALLEST = 340;
const PART = 0.42; // of the window's height
const BOX = { left: 74, right: 12, top: 12, bottom: 44 };
const SHOWN = 10; // curves of a tip: those nearest to the pointer
const DOTTED = 12; // of so many curves each has a dot at the cursor

export class Chart {
  // curves: [{name, label, x, y (Column-like: data, length), low, high, look}]; onhover(x) is called
  // where somebody points at a value of x.
  constructor(name, controls) {
    this.name = name;
    this.curves = [];
    this.titles = { x: "", y: "" };
    this.log = false;
    this.zoom = null;
    this.at = this.cursor = null;
    this.left = BOX.left;
    this.onhover = () => {};
    this.picture = svg("svg", {
      tabindex: 0, role: "img", "data-testid": `chart-${name}`,
    });
    this.files = el("span", {},
      ...["PNG", "SVG", "CSV"].map((kind) => el("button", {
        type: "button", "data-testid": `${kind.toLowerCase()}-${name}`,
        title: `Download what is seen as ${kind}`, onclick: () => download(this, kind),
      }, kind)));
    this.reset = el("button", { type: "button", disabled: true, onclick: () => this.zoomTo(null) }, "zoom out");
    this.node = el("div", { class: "chart" }, el("div", { class: "bar" }, ...controls, this.reset, this.files), this.picture);
    this.listen();
  }

  // A pixel of the picture is one of the screen, so text keeps its size on a narrow one.
  fit() {
    this.width = Math.min(1000, Math.max(280, Math.round((this.picture.clientWidth || 620) / zoom())));
    this.height = Math.round(Math.min(TALLEST, Math.max(200, (PART * innerHeight) / zoom())));
    this.inner = { width: this.width - BOX.left - BOX.right, height: this.height - BOX.top - BOX.bottom };
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
  }

  draw() {
    this.fit();
    this.ranges();
    const grid = colour("line");
    const [ink, soft, paper] = [colour("ink"), colour("soft"), colour("paper")];
    const text = { "font-family": "system-ui, sans-serif", "font-size": 13 };
    const parts = [svg("rect", { width: this.width, height: this.height, fill: paper })];
    for (const x of ticks(...this.span, this.width / 100)) {
      const at = this.sx(x);
      parts.push(svg("line", { x1: at, x2: at, y1: BOX.top, y2: BOX.top + this.inner.height, stroke: grid, "stroke-width": 0.7 }));
      parts.push(svg("text", { x: at, y: this.height - 26, fill: soft, "text-anchor": "middle", ...text }, short(x)));
    }
    for (const y of this.log ? logTicks(...this.rise) : ticks(...this.rise, 5)) {
      const at = this.sy(y);
      parts.push(svg("line", { x1: BOX.left, x2: this.width - BOX.right, y1: at, y2: at, stroke: grid, "stroke-width": 0.7 }));
      parts.push(svg("text", { x: BOX.left - 6, y: at + 4, fill: soft, "text-anchor": "end", ...text }, this.shown(y, 4)));
    }
    parts.push(svg("text", { x: BOX.left + this.inner.width / 2, y: this.height - 6, fill: ink, "text-anchor": "middle", ...text }, this.titles.x));
    const [tx, ty] = [15, BOX.top + this.inner.height / 2];
    parts.push(svg("text", { x: tx, y: ty, transform: `rotate(-90 ${tx} ${ty})`, fill: ink, "text-anchor": "middle", "data-axis": "y", ...text }, titleOf(this.titles.y)));
    const clip = `clip-${this.name}`;
    parts.push(svg("clipPath", { id: clip }, svg("rect", { x: BOX.left, y: BOX.top, ...this.inner })));
    const inside = svg("g", { "clip-path": `url(#${clip})` });
    for (const curve of this.curves) {
      const stroke = colour(curve.look.colour);
      if (curve.low) inside.append(svg("path", { d: this.area(curve), fill: stroke, opacity: 0.2 }));
      inside.append(svg("path", {
        d: this.path(curve.x, curve.y), fill: "none", stroke, "stroke-width": 1.8, "stroke-linejoin": "round",
        "stroke-dasharray": curve.look.dash || null, "data-run": curve.name, "data-rows": curve.y.length,
      }));
    }
    this.line = svg("g", { "clip-path": `url(#${clip})`, "data-mark": "cursor" });
    this.marks = svg("g", { "clip-path": `url(#${clip})`, "data-mark": "hover" });
    if (!this.curves.length) {
      parts.push(svg("text", { x: this.width / 2, y: this.height / 2, fill: soft, "text-anchor": "middle", ...text },
        `no ${titleOf(this.titles.y) || "rows"} yet`));
    }
    this.picture.replaceChildren(...parts, inside, this.line, this.marks);
    this.picture.setAttribute("aria-label", `${titleOf(this.titles.y)} over ${this.titles.x}: ${this.curves.map((c) => c.label).join(", ")}`);
    this.reset.disabled = !this.zoom;
    this.drawCursor();
    if (this.at !== null) this.hover(this.at, null);
  }

  shown(value, digits = 3) { return isShare(this.titles.y) ? percent(value) : short(value, digits); }

  // The time cursor, as a value of x; null where it is nowhere.
  setCursor(x) {
    if (this.cursor === x) return;
    this.cursor = x;
    this.drawCursor();
  }

  drawCursor() {
    if (!this.line || !this.span) return;
    const { cursor } = this;
    if (cursor === null || !this.curves.length) { this.line.replaceChildren(); return; }
    const at = this.sx(cursor);
    const marks = [svg("line", { x1: at, x2: at, y1: BOX.top, y2: BOX.top + this.inner.height, stroke: colour("accent"), "stroke-width": 1.5, "data-cursor": cursor })];
    for (const curve of this.curves.length <= DOTTED ? this.curves : []) {
      const n = nearest(curve, cursor);
      if (n >= 0 && this.usable(curve.y.data[n])) marks.push(svg("circle", { cx: this.sx(curve.x.data[n]), cy: this.sy(curve.y.data[n]), r: 3, fill: colour(curve.look.colour) }));
    }
    this.line.replaceChildren(...marks);
  }

  ranges() {
    let [low, high] = [Infinity, -Infinity];
    for (const { x, y } of this.curves) {
      for (let n = 0; n < y.length; n += 1) {
        if (Number.isFinite(y.data[n]) && Number.isFinite(x.data[n])) {
          low = Math.min(low, x.data[n]);
          high = Math.max(high, x.data[n]);
        }
      }
    }
    this.span = this.zoom ?? (low <= high ? [low, high > low ? high : low + 1] : [0, 1]);
    let [bottom, top] = [Infinity, -Infinity];
    for (const curve of this.curves) {
      for (let n = 0; n < curve.y.length; n += 1) {
        if (!(curve.x.data[n] >= this.span[0] && curve.x.data[n] <= this.span[1])) continue;
        for (const column of [curve.y, curve.low, curve.high]) {
          const value = column?.data[n];
          if (!Number.isFinite(value) || (this.log && value <= 0)) continue;
          bottom = Math.min(bottom, value);
          top = Math.max(top, value);
        }
      }
    }
    if (!(bottom <= top)) [bottom, top] = this.log ? [0.1, 1] : [0, 1];
    if (this.log) this.rise = top > bottom ? [bottom / 1.05, top * 1.05] : [bottom / 2, top * 2];
    else {
      const margin = top > bottom ? (top - bottom) * 0.04 : Math.abs(top) * 0.1 || 1;
      this.rise = [bottom - margin, top + margin];
    }
  }

  sx(x) { return BOX.left + ((x - this.span[0]) / (this.span[1] - this.span[0])) * this.inner.width; }

  sy(y) {
    const [low, high] = this.log ? this.rise.map(Math.log) : this.rise;
    const value = this.log ? Math.log(y) : y;
    return BOX.top + this.inner.height * (1 - (value - low) / (high - low));
  }

  usable(y) { return Number.isFinite(y) && (!this.log || y > 0); }

  // At most the first, lowest, highest and last point of every pixel: 100,000 rows cost as 1,000.
  path(xs, ys) {
    const points = [];
    let [pixel, first, lowest, highest, last] = [null, -1, -1, -1, -1];
    const flush = () => {
      if (first < 0) return;
      for (const n of [...new Set([first, lowest, highest, last])].sort((a, b) => a - b)) points.push(n);
    };
    for (let n = 0; n < ys.length; n += 1) {
      const x = xs.data[n];
      if (!Number.isFinite(x) || !this.usable(ys.data[n])) continue;
      const before = x < this.span[0];
      if (before && n + 1 < ys.length && xs.data[n + 1] < this.span[0]) continue;
      const at = Math.round(this.sx(x));
      if (at !== pixel) { flush(); [pixel, first, lowest, highest] = [at, n, n, n]; }
      if (ys.data[n] < ys.data[lowest]) lowest = n;
      if (ys.data[n] > ys.data[highest]) highest = n;
      last = n;
      if (x > this.span[1]) break;
    }
    flush();
    return points.map((n, i) => `${i ? "L" : "M"}${this.sx(xs.data[n]).toFixed(1)} ${this.sy(ys.data[n]).toFixed(1)}`).join("");
  }

  area(curve) {
    const there = this.path(curve.x, curve.high);
    const back = this.path(curve.x, curve.low).split(/[ML]/).filter(Boolean).reverse();
    return there && back.length ? `${there}L${back.join("L")}Z` : "";
  }

  listen() {
    const x = (event) => {
      const box = this.picture.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * this.width;
      const share = Math.min(1, Math.max(0, (at - BOX.left) / this.inner.width));
      return this.span[0] + share * (this.span[1] - this.span[0]);
    };
    let from = null;
    this.picture.addEventListener("pointerdown", (event) => { if (event.button === 0) from = x(event); });
    this.picture.addEventListener("pointermove", (event) => { const at = x(event); this.hover(at, event, from); this.onhover(at); });
    this.picture.addEventListener("pointerup", (event) => {
      const to = x(event);
      const wide = from !== null && Math.abs(this.sx(to) - this.sx(from)) > 8;
      if (wide) this.zoomTo([Math.min(from, to), Math.max(from, to)]);
      from = null;
    });
    this.picture.addEventListener("pointerleave", () => { from = null; this.leave(); });
    this.picture.addEventListener("dblclick", () => this.zoomTo(null));
    this.picture.addEventListener("blur", () => this.leave());
    this.picture.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => { if (this.width && Math.round(this.picture.clientWidth / zoom()) !== this.width) this.draw(); }).observe(this.picture);
  }

  leave() { this.at = null; this.marks?.replaceChildren(); hideTip(); }

  key(event) {
    const [low, high] = this.span;
    const middle = this.at ?? (low + high) / 2;
    const moves = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      "+": () => this.zoomTo([middle - (middle - low) / 2, middle + (high - middle) / 2]),
      "-": () => this.zoomTo(null), Escape: () => { this.leave(); this.zoomTo(null); },
    };
    if (moves[event.key]) { moves[event.key](); event.preventDefault(); }
  }

  // To the next row of the first curve, for who has no mouse.
  step(direction) {
    const curve = this.curves[0];
    if (!curve?.y.length) return;
    const now = this.at === null ? (direction > 0 ? -1 : curve.y.length) : nearest(curve, this.at);
    const next = Math.min(curve.y.length - 1, Math.max(0, now + direction));
    this.hover(curve.x.data[next], null);
    this.onhover(curve.x.data[next]);
  }

  zoomTo(span) {
    this.zoom = span;
    this.draw();
  }

  hover(at, event, from = null) {
    if (!this.curves.length || !this.span) return;
    this.at = at;
    const marks = [svg("line", {
      x1: this.sx(at), x2: this.sx(at), y1: BOX.top, y2: BOX.top + this.inner.height, stroke: colour("soft"), "stroke-dasharray": "3 3",
    })];
    if (from !== null) {
      const [a, b] = [this.sx(from), this.sx(at)].sort((p, q) => p - q);
      marks.push(svg("rect", { x: a, y: BOX.top, width: b - a, height: this.inner.height, fill: colour("accent"), opacity: 0.15 }));
    }
    const box = this.picture.getBoundingClientRect();
    const scale = box.width / this.width;
    const pointer = event ? (event.clientY - box.top) / scale : null;
    const near = [];
    for (const curve of this.curves) {
      const n = nearest(curve, at);
      if (n < 0) continue;
      const [x, y] = [curve.x.data[n], curve.y.data[n]];
      const place = this.usable(y) ? this.sy(y) : Infinity;
      near.push({ curve, n, x, y, place, far: pointer === null ? 0 : Math.abs(place - pointer) });
    }
    near.sort((a, b) => a.far - b.far);
    const rows = near.slice(0, SHOWN).sort((a, b) => b.y - a.y);
    for (const { curve, x, place } of rows) {
      if (Number.isFinite(place)) marks.push(svg("circle", { cx: this.sx(x), cy: place, r: 3.5, fill: colour(curve.look.colour) }));
    }
    this.marks.replaceChildren(...marks);
    const [px, py] = event ? [event.clientX, event.clientY] : [box.left + this.sx(at) * scale, box.top + box.height / 3];
    const head = el("tr", {}, el("td", {}, ""), el("td", {}, this.titles.x), el("td", {}, titleOf(this.titles.y)));
    const left = near.length - rows.length;
    showTip([el("table", {}, head, ...rows.map((row) => this.tipRow(row))), ...(left > 0 ? [el("div", {}, `and ${left} more, further from the pointer`)] : [])], px, py);
  }

  tipRow({ curve, n, x, y }) {
    const band = curve.low ? ` (${this.shown(curve.low.data[n])} to ${this.shown(curve.high.data[n])})` : "";
    const swatch = svg("svg", { width: 22, height: 8, "aria-hidden": true }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour(curve.look.colour), "stroke-width": 2.5, "stroke-dasharray": curve.look.dash || null }));
    return el("tr", {}, el("td", { class: "name" }, swatch, " ", curve.label), el("td", { "data-value": x }, three(x)), el("td", { "data-value": y }, this.shown(y, 4) + band));
  }
}

// The row whose x is nearest; x never falls.
function nearest({ x, y }, at) {
  let [low, high] = [0, y.length - 1];
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x.data[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - x.data[low - 1] < x.data[low] - at ? low - 1 : low;
}
