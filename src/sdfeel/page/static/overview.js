// All runs at a glance: a card for each that is under way, and a table that sorts, filters and compares.

import { el, isSaved, keepIfSame, short } from "./util.js";
import { three } from "./units.js";

const FIXED = ["run", "state", "iterations", "simulated s", "best accuracy", "best loss"];
const SECONDS = "simulated s";
const MOST = 200; // rows that are shown

export class Overview {
  constructor(section, store) {
    this.store = store;
    [this.by, this.down, this.baseline] = ["run", false, null];
    this.cards = el("div", { class: "cards", "data-testid": "cards" });
    this.filter = el("input", { type: "search", "data-testid": "filter", "aria-label": "Only runs whose name has", placeholder: "filter by name", oninput: () => this.draw() });
    this.table = el("div", { class: "scroll", "data-testid": "runs", tabindex: 0, role: "region", "aria-label": "All runs" });
    this.words = el("p", { class: "empty" });
    this.reports = el("p", { class: "links", "data-testid": "reports" });
    section.append(this.reports, this.cards, el("div", { class: "bar" }, this.filter), this.table, this.words);
  }

  bind(address) {
    address.bind("filter", () => this.filter.value, (text) => { this.filter.value = text; });
    address.bind("sort", () => (this.by === "run" && !this.down ? "" : `${this.down ? "-" : ""}${this.by}`), (text) => {
      [this.by, this.down] = [text.replace(/^-/, ""), text.startsWith("-")];
    });
    address.bind("baseline", () => this.baseline ?? "", (text) => { this.baseline = text || null; });
  }

  draw() {
    const runs = [...this.store.runs.values()];
    this.areReal = runs.every((run) => run.about.real);
    this.filter.hidden = runs.length < 2;
    this.words.textContent = runs.length ? "" : "No run yet.";
    const reports = this.store.answer?.reports ?? [];
    this.reports.hidden = !reports.length;
    keepIfSame(this.reports, reports, () => ["Reports: ", ...reports.map((name) => el("a", {
      href: isSaved ? name : `report?of=${encodeURIComponent(name)}`, target: "_blank", rel: "noopener",
    }, isSaved ? "figures, table and settings" : name))]);
    const going = runs.filter((run) => ["under way", "damaged"].includes(run.about.state));
    keepIfSame(this.cards, going.map((run) => [run.name, run.about.state, run.about.last, run.about.steps]), () => going.slice(0, 12).map(card));
    const differing = this.store.answer?.differing ?? [];
    const rows = runs.filter((run) => run.name.toLowerCase().includes(this.filter.value.toLowerCase())).map((run) => cells(run, differing));
    const way = this.down ? -1 : 1;
    rows.sort((a, b) => way * compare(a.values[this.by], b.values[this.by]));
    const mark = [rows.map((row) => row.values), this.by, this.down, this.baseline, differing];
    keepIfSame(this.table, mark, () => (rows.length ? [this.whole(rows, differing)] : []));
  }

  whole(rows, differing) {
    const base = rows.find((row) => row.name === this.baseline);
    const columns = [...FIXED, ...differing];
    const head = el("tr", {}, ...columns.map((name) => el("th", {
      scope: "col", "aria-sort": name === this.by ? (this.down ? "descending" : "ascending") : null,
    }, el("button", { type: "button", class: "sort", "data-sort": name, onclick: () => this.sort(name) }, name === SECONDS && this.areReal ? "real s" : name))), el("th", { scope: "col" }, "baseline"));
    const left = rows.length - MOST;
    return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.slice(0, MOST).map((row) => this.line(row, columns, base)),
      left > 0 ? el("tr", {}, el("td", { colspan: columns.length + 1 }, `${left} more: filter by name`)) : null));
  }

  line(row, columns, base) {
    const isBase = row.name === this.baseline;
    const shown = (name) => {
      const value = row.values[name];
      if (name === "best accuracy" && value !== null) return `${percent(value)}${base && !isBase ? ` (${signed(value, base.values[name])})` : ""}`;
      return typeof value === "number" ? three(value) : value ?? "–";
    };
    return el("tr", { "data-run": row.name, class: isBase ? "baseline" : null },
      ...columns.map((name) => el("td", { class: name === "run" ? "words" : name === "state" && row.values.state === "damaged" ? "bad" : null, "data-value": row.values[name] }, shown(name))),
      el("td", {}, el("button", { type: "button", "aria-pressed": String(isBase), onclick: () => { this.baseline = isBase ? null : row.name; this.draw(); } }, isBase ? "unpin" : "pin")));
  }

  sort(name) {
    [this.by, this.down] = [name, this.by === name ? !this.down : name.startsWith("best accuracy")];
    this.draw();
    this.table.querySelector(`[data-sort="${CSS.escape(name)}"]`)?.focus();
  }
}

function cells(run, differing) {
  const { about } = run;
  const values = {
    run: run.name, state: about.state, iterations: about.last?.iteration ?? 0, "simulated s": about.last?.seconds ?? null,
    "best accuracy": about.best.accuracy, "best loss": about.best.loss,
  };
  for (const name of differing) values[name] = about.differs[name] ?? null;
  return { name: run.name, values };
}

function card(run) {
  if (run.about.state === "damaged") {
    return el("article", { class: "card damaged", "data-run": run.name }, el("strong", {}, run.name), el("span", { class: "bad" }, "damaged"), el("span", {}, run.about.problems[0] ?? ""));
  }
  const { last, steps, best } = run.about;
  const done = steps && last ? Math.min(1, last.iteration / steps) : null;
  const elapsed = run.column("elapsed");
  const spent = elapsed?.length ? elapsed.data[elapsed.length - 1] : NaN;
  const left = done && spent > 0 ? `about ${duration(spent * (1 / done - 1))} left` : "time left unknown";
  return el("article", { class: "card", "data-run": run.name },
    el("strong", {}, run.name),
    done === null ? null : el("progress", { value: done, max: 1, "aria-label": `${run.name}: part that is done` }),
    el("span", {}, done === null ? "no end is set" : `${percent(done)}, ${left}`),
    el("span", {}, best.accuracy === null ? "" : `best accuracy ${percent(best.accuracy)}`));
}

function duration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${short(seconds / 3600, 2)} h`;
}

function percent(value) {
  return `${(100 * value).toFixed(1)} %`;
}

function signed(value, base) {
  if (base === null || base === undefined) return "–";
  const points = 100 * (value - base);
  return `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(1)}`;
}

// Numbers by size, names by their numbers; what is missing comes last.
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  const difference = Number(a) - Number(b); // settings come as text
  if (Number.isFinite(difference)) return difference;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
