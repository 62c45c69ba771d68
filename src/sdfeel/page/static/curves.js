// Losses and accuracies of all runs, over simulated time, iterations or real time.

import { translate } from "./clock.js";
import { Chart } from "./plot.js";
import { ask, el, keepIfSame, looks, svg, watchSeen } from "./util.js";
import { titleOf } from "./units.js";

const XS = { seconds: "simulated seconds", iteration: "iterations", elapsed: "real seconds" };
const FIRST = [
  ["train_loss", "batch_loss", "test_loss", "clients_train_loss", "clients_batch_loss"],
  ["test_accuracy", "train_accuracy", "clients_train_accuracy"],
];

export class Curves {
  constructor(section, store, clock, choice) {
    Object.assign(this, { store, clock, choice });
    this.hidden = new Set();
    this.bands = new Map();
    this.x = select("x", Object.entries(XS), () => { this.zoomOut(); this.draw(); });
    this.log = el("input", { type: "checkbox", "data-testid": "log", onchange: () => this.draw() });
    this.seeds = el("input", { type: "checkbox", checked: true, "data-testid": "bands", onchange: () => this.draw() });
    this.legend = el("ul", { class: "legend", "data-testid": "legend", "aria-label": "Runs; press to hide or show" });
    this.charts = FIRST.map((wanted, n) => {
      const metric = select(`y${n}`, [], () => { metric.chosen = true; this.draw(); });
      const chart = new Chart(String(n), [el("label", {}, "draw", metric)]);
      chart.onhover = (x) => this.point(x);
      return Object.assign(chart, { metric, wanted });
    });
    this.problems = el("div", { "data-testid": "problems" });
    this.isSeen = watchSeen(section, () => this.move());
    clock.on(() => this.move());
    section.append(
      el("div", { class: "bar" }, el("label", {}, "against", this.x), el("label", {}, this.log, "logarithmic"),
        el("label", {}, this.seeds, "seeds as one band"),
        el("button", { type: "button", onclick: () => this.showAll(true) }, "show all"),
        el("button", { type: "button", onclick: () => this.showAll(false) }, "hide all")),
      this.problems, this.legend, el("div", { class: "charts" }, ...this.charts.map((c) => c.node)));
  }

  bind(address) {
    const boxes = { x: this.x, y0: this.charts[0].metric, y1: this.charts[1].metric };
    for (const [name, list] of Object.entries(boxes)) {
      const chart = this.charts.find(({ metric }) => metric === list);
      address.bind(name, () => (chart ? (list.chosen ? list.value : "") : list.value === "seconds" ? "" : list.value),
        (text) => { if (chart) { chart.wanted = [text, ...chart.wanted]; list.chosen = true; list.value = text; } else if (text in XS) list.value = text; this.draw(); });
    }
    address.bind("log", () => (this.log.checked ? 1 : ""), (text) => { this.log.checked = text === "1"; });
    address.bind("seeds", () => (this.seeds.checked ? "" : "apart"), (text) => { this.seeds.checked = text !== "apart"; });
    address.bind("hide", () => [...this.hidden].join("\n"), (text) => { this.hidden = new Set(text.split("\n").filter(Boolean)); });
  }

  // The cursor is a second of the run that is looked at: elsewhere the value of x in that row.
  move() {
    if (this.clock.playing && !this.isSeen()) return;
    const { run } = this.choice;
    const x = run?.metrics.rows ? translate(run.column("seconds"), run.column(this.x.value), this.clock.now) : null;
    for (const chart of this.charts) chart.setCursor(Number.isFinite(x) ? x : null);
  }

  point(x) {
    const { run } = this.choice;
    const seconds = run && translate(run.column(this.x.value), run.column("seconds"), x);
    if (!Number.isFinite(seconds)) return;
    if (this.clock.playing) this.clock.pause();
    this.clock.set(this.x.value === "seconds" ? x : seconds);
  }

  zoomOut() { for (const chart of this.charts) chart.zoom = null; }

  showAll(shown) {
    this.hidden = new Set(shown ? [] : this.entries().map((entry) => entry.name));
    this.draw();
  }

  // One curve for each run; or, with bands, for each group of seeds.
  entries() {
    const grouped = this.seeds.checked;
    const found = [];
    for (const [group, runs] of this.store.groups) {
      if (grouped && runs.length > 1) found.push({ name: group, label: `${group} (${runs.length} seeds)`, runs });
      else for (const run of runs) found.push({ name: run.name, label: run.name, runs: [run] });
    }
    const chosen = looks(found.map((entry) => entry.label));
    return found.map((entry, n) => ({ ...entry, look: chosen[n] }));
  }

  draw() {
    const entries = this.entries();
    this.say();
    this.list(entries);
    const all = new Set([...this.store.runs.values()].flatMap((run) => run.about.columns));
    const names = [...all].filter((name) => !["iteration", "seconds"].includes(name));
    for (const chart of this.charts) {
      this.offer(chart, names);
      const y = chart.metric.value;
      chart.titles = { x: this.axis(), y };
      chart.log = this.log.checked;
      const shown = entries.filter((entry) => !this.hidden.has(entry.name));
      chart.curves = shown.map((entry) => this.curve(entry, y)).filter((curve) => curve !== null);
      chart.draw();
    }
    this.move();
  }

  // The seconds of a deployment's runs are real ones.
  axis() {
    const runs = [...this.store.runs.values()];
    const real = this.x.value === "seconds" && runs.length > 0 && runs.every((run) => run.about.real);
    return XS[real ? "elapsed" : this.x.value];
  }

  offer(chart, names) {
    keepIfSame(chart.metric, names, () => {
      const kept = chart.metric.chosen ? chart.metric.value : "";
      const value = [kept, ...chart.wanted].find((name) => names.includes(name)) ?? names[0] ?? "";
      return names.map((name) => el("option", { value: name, selected: name === value }, titleOf(name)));
    });
  }

  curve(entry, y) {
    const { name, label, look: how, runs } = entry;
    if (runs.length === 1) {
      const [run] = runs;
      const [xs, ys] = [run.column(this.x.value), run.column(y)];
      if (!xs || !ys) return null;
      return { name, label, look: how, x: xs, y: ys };
    }
    const key = JSON.stringify([name, this.x.value, y]);
    const mark = runs.map((run) => `${run.metrics.changes}/${run.trace.changes}`).join(" ");
    const known = this.bands.get(key) ?? { mark: "", curve: null };
    if (known.mark !== mark) {
      this.bands.set(key, { ...known, mark });
      this.fetchBand(key, runs, y).then(() => this.draw());
    }
    return known.curve && { ...known.curve, name, label, look: how };
  }

  async fetchBand(key, runs, y) {
    try {
      const found = await ask("band", { runs: runs.map((run) => run.name).join("\n"), x: this.x.value, y });
      const column = (values) => ({ data: Float64Array.from(values, (v) => v ?? NaN), length: values.length });
      const curve = found.seeds
        ? { x: column(found.x), y: column(found.middle), low: column(found.low), high: column(found.high) } : null;
      this.bands.set(key, { ...this.bands.get(key), curve });
    } catch { /* the next look asks again */ }
  }

  list(entries) {
    const mark = entries.map((e) => [e.label, this.hidden.has(e.name), e.runs.map((r) => r.about.state)]);
    keepIfSame(this.legend, mark, () => entries.map((entry) => {
      const states = new Set(entry.runs.map((run) => run.about.state));
      const state = states.has("under way") ? "under way" : [...states].join(", ");
      const line = svg("svg", { width: 34, height: 10, "aria-hidden": true }, svg("line", {
        x1: 0, x2: 34, y1: 5, y2: 5, stroke: `var(--${entry.look.colour})`, "stroke-width": 2.5,
        "stroke-dasharray": entry.look.dash || null,
      }));
      return el("li", {}, el("button", {
        type: "button", "aria-pressed": String(!this.hidden.has(entry.name)), title: `${entry.label}: ${state}`,
        "data-run": entry.name,
        onclick: () => {
          if (!this.hidden.delete(entry.name)) this.hidden.add(entry.name);
          this.draw();
          this.legend.querySelector(`[data-run="${CSS.escape(entry.name)}"]`)?.focus();
        },
      }, line, el("span", {}, entry.label)));
    }));
  }

  say() {
    const said = [...this.store.runs.values()].flatMap((run) =>
      run.about.problems.map((problem) => `${run.name}: ${problem}`));
    keepIfSame(this.problems, said, () => said.slice(0, 20).map((text) => el("p", { class: "note bad" }, text)));
  }
}

function select(name, options, onchange) {
  return el("select", { "data-testid": name, onchange },
    ...options.map(([value, label]) => el("option", { value }, label)));
}
