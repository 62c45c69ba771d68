// Who computes, sends and waits; and where the seconds of a round go, predicted and measured.

import { ask, colour, el, hideTip, keepIfSame, short, showTip, svg, ticks } from "./util.js";

const PARTS = ["compute", "upload", "exchange", "waiting", "download"];
const MOST_LANES = 100;

export class TimeView {
  constructor(section, store) {
    this.store = store;
    this.which = el("select", { "data-testid": "time-of", onchange: () => this.draw() });
    this.rounds = el("select", { "data-testid": "rounds", onchange: () => this.draw() },
      ...[2, 4, 8, 16].map((n) => el("option", { value: n, selected: n === 4 }, String(n))));
    this.words = el("p", { class: "empty" });
    this.lanes = el("div", { class: "wide", "data-testid": "lanes" });
    this.stack = el("div", { class: "wide", "data-testid": "stack" });
    const keys = [...PARTS, "save"].map((part) => el("span", {}, el("span", { class: `key ${part}` }), part === "waiting" ? "wait" : part));
    this.choose = [el("label", {}, "of", this.which), el("label", {}, "last rounds", this.rounds)];
    section.append(el("div", { class: "bar" }, ...this.choose, ...keys),
      this.words, this.lanes, el("h3", {}, "Where a round's seconds go"), this.stack);
    new ResizeObserver(() => { if (this.width && Math.abs(this.stack.clientWidth - this.width) > 1) this.draw(); }).observe(this.stack);
  }

  async draw() {
    const names = [...this.store.runs.values()].filter((run) => !run.about.real).map((run) => run.name);
    keepIfSame(this.which, names, () => {
      const before = this.which.value;
      return names.map((name) => el("option", { value: name, selected: name === before }, name));
    });
    const name = this.which.value;
    this.lanes.hidden = !name;
    for (const label of this.choose) label.hidden = !name;
    let found = null;
    if (name) {
      const run = this.store.runs.get(name);
      const mark = `${name} ${run.about.edition} ${run.about.rows} ${this.rounds.value}`;
      if (this.mark === mark && this.found?.whole) found = this.found;
      else {
        try {
          found = await ask("timeline", { run: name, rounds: this.rounds.value });
          this.words.textContent = "";
        } catch (problem) {
          found = null;
          this.words.textContent = `No timeline of ${name}: ${problem.message}`;
        }
        if (this.which.value !== name) return;
        [this.mark, this.found] = [mark, found ?? { whole: true, missing: true }];
      }
      if (found?.missing) found = null;
    } else this.words.textContent = this.store.deployment ? "" : "No run yet, so no timeline.";
    this.paint(found);
  }

  paint(found) {
    this.width = Math.min(1300, Math.max(280, Math.round(this.stack.clientWidth || 960)));
    const theme = `${document.documentElement.dataset.theme} ${this.width}`;
    const boxes = found?.boxes ?? [];
    keepIfSame(this.lanes, [this.mark, found?.iteration, found?.seconds, found?.whole, boxes.length, theme, this.which.value],
      () => (boxes.length ? [this.timeline(found), ...this.leftOff(found)] : []));
    const bars = [];
    if (found?.clock) bars.push(["the clock (sdfeel clock)", found.clock, "clock"]);
    if (boxes.length) bars.push([found.mean_of, found.mean, "mean"]);
    const { edges = [], prediction = null } = this.store.deployment ?? {};
    for (const edge of edges) {
      const parts = edge.phases ?? {};
      if (prediction) bars.push([`${edge.name}: the clock, ${prediction.profile}`, prediction.edges[edge.name], `${edge.name}-clock`]);
      if (Object.keys(parts).length) bars.push([`${edge.name}: measured, its last round`, parts, edge.name]);
    }
    keepIfSame(this.stack, [bars, theme], () => (bars.length ? [this.bars(bars), table(bars)]
      : [el("p", { class: "empty" }, "Nothing to add up yet.")]));
    this.lanes.hidden = !boxes.length;
  }

  leftOff({ names }) {
    const more = names.length - MOST_LANES;
    return more > 0 ? [el("p", { class: "empty" }, `and ${more} more, which are in the mean below`)] : [];
  }

  timeline(found) {
    const names = found.names.slice(0, MOST_LANES);
    const lanes = names.length;
    const boxes = found.boxes.filter((box) => box.lane < lanes);
    const ends = boxes.map((box) => PARTS.reduce((sum, part) => sum + box.parts[part], box.start));
    const tall = lanes > 40 ? 8 : lanes > 20 ? 13 : 20;
    const [left, top] = [70, 6];
    const first = Math.min(...boxes.map((box) => box.start));
    const last = Math.max(...ends);
    const sx = (t) => left + ((t - first) / (last - first || 1)) * (this.width - left - 14);
    const height = top + lanes * tall + 40;
    const parts = [];
    for (const t of ticks(first, last, this.width / 120)) {
      parts.push(svg("line", { x1: sx(t), x2: sx(t), y1: top, y2: top + lanes * tall, stroke: colour("line") }));
      parts.push(svg("text", { x: sx(t), y: top + lanes * tall + 16, "text-anchor": "middle", "font-size": 12, fill: colour("soft") }, short(t)));
    }
    parts.push(svg("text", { x: this.width / 2, y: height - 4, "text-anchor": "middle", "font-size": 12, fill: colour("ink") }, "simulated seconds"));
    names.forEach((name, lane) => {
      if (lanes > 40 && lane % 5 !== 0) return;
      parts.push(svg("text", { x: left - 6, y: top + lane * tall + tall * 0.75, "text-anchor": "end", "font-size": Math.min(12, tall + 1), fill: colour("ink") }, name));
    });
    const fills = Object.fromEntries(PARTS.map((part) => [part, colour(part)]));
    for (const box of boxes) {
      let at = box.start;
      for (const part of PARTS) {
        const [from, seconds] = [at, box.parts[part]];
        if (seconds <= 0) continue;
        const about = `${names[box.lane]}, iterations ${box.first} to ${box.last}: ${part} ${short(seconds)} s, from ${short(from)} s`;
        parts.push(svg("rect", {
          x: sx(from), y: top + box.lane * tall + 1, width: Math.max(0.4, sx(from + seconds) - sx(from)), height: tall - 2,
          fill: fills[part], "data-part": part, "data-lane": box.lane,
          onpointermove: (event) => showTip([el("div", {}, about)], event.clientX, event.clientY), onpointerleave: hideTip,
        }));
        at += seconds;
      }
    }
    return svg("svg", { viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-label": "Timeline of every server over the last rounds" }, ...parts);
  }

  bars(bars) {
    const most = Math.max(...bars.map(([, parts]) => total(parts)), 1e-12);
    const narrow = this.width < 600; // then a bar's name stands above it
    const [left, tall] = narrow ? [2, 52] : [250, 30];
    const drawn = bars.flatMap(([label, parts], n) => {
      let x = left;
      const top = n * tall + (narrow ? 22 : 4);
      const boxes = named(parts).map(([part, seconds]) => {
        const width = (seconds / most) * (this.width - left - 90);
        const box = svg("rect", { x, y: top, width, height: 22, fill: colour(part) });
        box.append(svg("title", {}, `${part}: ${short(seconds)} s`));
        x += width;
        return box;
      });
      const text = { "font-size": 13, fill: colour("ink") };
      const place = narrow ? { x: left, y: top - 6 } : { x: left - 8, y: top + 15, "text-anchor": "end" };
      return [svg("text", { ...place, ...text }, label.slice(0, 36)), ...boxes,
        svg("text", { x: x + 6, y: top + 15, ...text }, `${short(total(parts))} s`)];
    });
    return svg("svg", { viewBox: `0 0 ${this.width} ${bars.length * tall + 4}`, role: "img", "aria-label": "Seconds of a round by what they go into" }, ...drawn);
  }
}

const named = (parts) => [...PARTS, "save"].map((name) => [name, parts[name] ?? 0]).filter(([, seconds]) => seconds > 0);
const total = (parts) => parts.total ?? named(parts).reduce((sum, [, seconds]) => sum + seconds, 0);

function table(bars) {
  const names = [...new Set(bars.flatMap(([, parts]) => named(parts).map(([name]) => name)))];
  return el("div", { class: "scroll" }, el("table", {},
    el("tr", {}, ...["seconds", ...names, "in all"].map((name) => el("th", { scope: "col" }, name))),
    ...bars.map(([label, parts, key]) => el("tr", { "data-bar": key }, el("th", { scope: "row" }, label),
      ...names.map((name) => el("td", { "data-part": name, "data-value": parts[name] ?? "" }, name in parts ? short(parts[name]) : "–")),
      el("td", { "data-part": "total", "data-value": total(parts) }, short(total(parts)))))));
}
