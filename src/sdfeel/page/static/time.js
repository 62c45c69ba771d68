// Who computes, sends and waits; and where the seconds of a round go, predicted and measured.

import { PARTS } from "./moments.js";
import { ask, colour, el, hideTip, keepIfSame, short, showTip, svg, ticks, watchSeen, zoom } from "./util.js";
import { seconds as inSeconds, three } from "./units.js";

const MOST_LANES = 100;
const EVERY = 120; // milliseconds between two pages of a timeline that plays
const [LEFT, TOP, RIGHT] = [70, 6, 14];

export class TimeView {
  constructor(section, store, clock, choice) {
    Object.assign(this, { store, clock, choice, turned: -Infinity });
    this.rounds = el("select", { "data-testid": "rounds", onchange: () => this.draw() },
      ...[2, 4, 8, 16].map((n) => el("option", { value: n, selected: n === 4 }, `${n} rounds`)));
    this.words = el("p", { class: "empty" });
    this.lanes = el("div", { class: "wide", "data-testid": "lanes" });
    this.stack = el("div", { class: "wide", "data-testid": "stack" });
    const keys = [...PARTS, "save"].map((part) => el("span", {}, el("span", { class: `key ${part}` }), part === "waiting" ? "wait" : part));
    this.choose = [el("label", {}, "show the time of", choice.select("time-of")), el("label", {}, "show at once", this.rounds)];
    section.append(el("div", { class: "bar" }, ...this.choose, ...keys),
      this.words, this.lanes, el("h3", {}, "Where a round's seconds go"), this.stack);
    this.isSeen = watchSeen(section, () => this.move());
    clock.on(() => this.move());
    new ResizeObserver(() => { if (this.width && Math.abs(this.stack.clientWidth / zoom() - this.width) > 1) this.draw(); }).observe(this.stack);
  }

  async draw() {
    const { run } = this.choice;
    const name = run?.name;
    for (const label of this.choose) label.hidden = !this.choice.name;
    let found = null;
    if (run) {
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
        if (this.choice.name !== name) return;
        [this.mark, this.found] = [mark, found ?? { whole: true, missing: true }];
      }
      if (found?.missing) found = null;
    } else {
      this.words.textContent = this.store.deployment ? "" : "No run yet, so no timeline.";
      this.mark = `${this.choice.name}`;
    }
    this.paint(found);
  }

  // The last rounds; or, where the cursor is before them, those around it.
  boxes(found) {
    if (!found?.boxes.length) return [];
    const { run } = this.choice;
    const { now } = this.clock;
    const first = found.boxes.reduce((least, box) => Math.min(least, box.start), Infinity);
    if (now >= first - 1e-12 || !run.events.rows) return found.boxes;
    return run.moments.around(now, Number(this.rounds.value), found.boxes.length / (Number(this.rounds.value) * found.names.length), found.names.length);
  }

  // The cursor's line; other rounds only where it leaves those that are shown.
  move() {
    if (!this.shown || (this.clock.playing && !this.isSeen())) return;
    const { first, last } = this.shown;
    const { now } = this.clock;
    const boxes = now < first || now > last ? this.boxes(this.painted) : null;
    if (boxes?.length && boxes[0].start !== this.shown.begins) {
      const time = performance.now();
      if (this.clock.playing && time - this.turned < EVERY) return;
      this.turned = time;
      this.paint(this.painted);
      return;
    }
    const x = LEFT + ((now - first) / (last - first || 1)) * (this.width - LEFT - RIGHT);
    const inside = now >= first && now <= last * (1 + 1e-12);
    this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.cursor.dataset.cursor = now;
  }

  paint(found) {
    this.width = Math.min(1300, Math.max(280, Math.round((this.stack.clientWidth || 960) / zoom())));
    const theme = `${document.documentElement.dataset.theme} ${this.width}`;
    this.painted = found;
    const boxes = this.boxes(found);
    if (!boxes.length) this.shown = null;
    keepIfSame(this.lanes, [this.mark, found?.iteration, found?.seconds, found?.whole, boxes.length, boxes[0]?.start, theme],
      () => (boxes.length ? [this.timeline(found, boxes), ...this.leftOff(found)] : []));
    this.move();
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

  timeline(found, all) {
    const names = found.names.slice(0, MOST_LANES);
    const lanes = names.length;
    const boxes = all.filter((box) => box.lane < lanes);
    const ends = boxes.map((box) => PARTS.reduce((sum, part) => sum + box.parts[part], box.start));
    const tall = lanes > 40 ? 8 : lanes > 20 ? 13 : 20;
    const [left, top] = [LEFT, TOP];
    const first = Math.min(...boxes.map((box) => box.start));
    const last = Math.max(...ends);
    this.shown = { first, last, begins: all[0].start };
    const sx = (t) => left + ((t - first) / (last - first || 1)) * (this.width - left - RIGHT);
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
        const about = `${names[box.lane]}, iterations ${box.first} to ${box.last}: ${part} ${inSeconds(seconds)}, from ${short(from)} s`;
        parts.push(svg("rect", {
          x: sx(from), y: top + box.lane * tall + 1, width: Math.max(0.4, sx(from + seconds) - sx(from)), height: tall - 2,
          fill: fills[part], "data-part": part, "data-lane": box.lane,
          onpointermove: (event) => showTip([el("div", {}, about)], event.clientX, event.clientY), onpointerleave: hideTip,
        }));
        at += seconds;
      }
    }
    this.cursor = svg("line", { y1: top, y2: top + lanes * tall, stroke: colour("ink"), "stroke-width": 1.5, "data-mark": "cursor" });
    const picture = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-label": "Timeline of every server" }, ...parts, this.cursor);
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const share = (((event.clientX - box.left) / box.width) * this.width - left) / (this.width - left - RIGHT);
      if (share < 0 || share > 1) return;
      if (this.clock.playing) this.clock.pause();
      this.clock.set(first + share * (last - first));
    });
    return picture;
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
        box.append(svg("title", {}, `${part}: ${inSeconds(seconds)}`));
        x += width;
        return box;
      });
      const text = { "font-size": 13, fill: colour("ink") };
      const place = narrow ? { x: left, y: top - 6 } : { x: left - 8, y: top + 15, "text-anchor": "end" };
      return [svg("text", { ...place, ...text }, label.slice(0, 36)), ...boxes,
        svg("text", { x: x + 6, y: top + 15, ...text }, inSeconds(total(parts)))];
    });
    return svg("svg", { viewBox: `0 0 ${this.width} ${bars.length * tall + 4}`, role: "img", "aria-label": "Seconds of a round by what they go into" }, ...drawn);
  }
}

const named = (parts) => [...PARTS, "save"].map((name) => [name, parts[name] ?? 0]).filter(([, seconds]) => seconds > 0);
const total = (parts) => parts.total ?? named(parts).reduce((sum, [, seconds]) => sum + seconds, 0);

function table(bars) {
  const names = [...new Set(bars.flatMap(([, parts]) => named(parts).map(([name]) => name)))];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Seconds of a round by what they go into" }, el("table", {},
    el("tr", {}, ...["seconds", ...names, "in all"].map((name) => el("th", { scope: "col" }, name))),
    ...bars.map(([label, parts, key]) => el("tr", { "data-bar": key }, el("th", { scope: "row" }, label),
      ...names.map((name) => el("td", { "data-part": name, "data-value": parts[name] ?? "" }, name in parts ? three(parts[name]) : "–")),
      el("td", { "data-part": "total", "data-value": total(parts) }, three(total(parts)))))));
}
