// The rows of all runs as they come in: asked for from where we are, never twice.

import { Moments } from "./moments.js";
import { ask } from "./util.js";

// Numbers that grow at their end, 8 bytes each.
export class Column {
  constructor() { this.data = new Float64Array(64); this.length = 0; }

  push(values) {
    const wanted = this.length + values.length;
    if (wanted > this.data.length) {
      const larger = new Float64Array(Math.max(wanted, Math.ceil(this.data.length * 1.5)));
      larger.set(this.data.subarray(0, this.length));
      this.data = larger;
    }
    for (let n = 0; n < values.length; n += 1) this.data[this.length + n] = values[n] ?? NaN;
    this.length = wanted;
  }
}

class Table {
  constructor() { this.columns = new Map(); this.rows = 0; this.edition = -1; this.changes = 0; }

  take(answer) {
    if (answer.edition !== this.edition || answer.start !== this.rows) {
      this.columns = new Map();
      this.rows = 0;
      this.edition = answer.edition;
      this.changes += 1;
      if (answer.start !== 0) return;
    }
    for (const [name, values] of Object.entries(answer.columns)) {
      if (!this.columns.has(name)) this.columns.set(name, new Column());
      this.columns.get(name).push(values);
      this.rows = answer.start + values.length;
    }
    this.changes += 1;
  }
}

export class Run {
  constructor(name) {
    this.name = name;
    this.about = {};
    this.metrics = new Table();
    this.trace = new Table();
    this.events = new Table();
    this.moments = new Moments(this.events);
  }

  column(name) {
    if (name !== "elapsed") return this.metrics.columns.get(name);
    if (this.about.real) return this.metrics.columns.get("seconds");
    return this.elapsed();
  }

  // Real seconds stand in the trace, by iteration; both only grow.
  elapsed() {
    const mark = `${this.metrics.changes} ${this.trace.changes}`;
    if (this.elapsedMark !== mark) {
      const made = new Column();
      const [at, seconds] = [this.trace.columns.get("iteration"), this.trace.columns.get("elapsed")];
      const steps = this.metrics.columns.get("iteration");
      if (at && seconds && steps) {
        const found = new Map();
        for (let n = 0; n < at.length; n += 1) found.set(at.data[n], seconds.data[n]);
        const values = new Array(steps.length);
        for (let n = 0; n < steps.length; n += 1) values[n] = found.get(steps.data[n]) ?? NaN;
        made.push(values);
      }
      this.elapsedColumn = made;
      this.elapsedMark = mark;
    }
    return this.elapsedColumn;
  }
}

export class Store {
  constructor() { this.runs = new Map(); this.answer = null; this.groups = new Map(); }

  // One look: the table of runs, then the rows that are new.
  async look() {
    const answer = await ask("runs");
    this.answer = answer;
    const known = new Map();
    for (const about of answer.runs) {
      const run = this.runs.get(about.name) ?? new Run(about.name);
      run.about = about;
      known.set(about.name, run);
    }
    this.runs = known;
    this.groups = new Map();
    for (const run of known.values()) {
      const group = this.groups.get(run.about.group) ?? [];
      group.push(run);
      this.groups.set(run.about.group, group);
    }
    await Promise.all([...known.values()].map((run) => this.fetchRows(run)));
    return answer;
  }

  async fetchRows(run) {
    const { rows, edition, traced, trace_edition: traceEdition } = run.about;
    await fetchTable(run, run.metrics, "metrics", rows, edition);
    await fetchTable(run, run.trace, "trace", traced, traceEdition);
  }

  // What servers did, of the run that is looked at; a long one comes in parts, look by look.
  async fetchEvents(run) {
    const mark = `${run.about.edition} ${run.about.rows}`;
    if (run.playedTo === mark || run.isAsked) return;
    run.isAsked = true;
    try {
      for (let rows = Infinity; run.events.rows < rows;) {
        const before = run.events.rows;
        const answer = await ask("rows", { run: run.name, start: before, table: "events" });
        run.events.take(answer);
        Object.assign(run, { stride: answer.stride, laneKind: answer.kind });
        if (answer.whole) run.playedTo = mark;
        if (run.events.rows === before) break;
        rows = answer.rows;
      }
    } catch {
      run.playedTo = mark; // the timeline says why
    } finally {
      run.isAsked = false;
    }
    run.moments.read();
  }
}

async function fetchTable(run, table, name, rows, edition) {
  if (table.edition !== edition) Object.assign(table, { columns: new Map(), rows: 0, edition });
  while (table.rows < rows && table.edition === edition) {
    const before = table.rows;
    table.take(await ask("rows", { run: run.name, start: before, table: name }));
    if (table.rows === before) return;
  }
}
