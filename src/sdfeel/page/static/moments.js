// What every server did at a second of a run: its periods, as the server of the page sent them.

import { before } from "./clock.js";

export const PARTS = ["compute", "upload", "waiting", "exchange", "download"];

export class Moments {
  constructor(table) {
    this.table = table;
    this.mark = "";
  }

  // By lane, its periods in the order in which they began.
  read() {
    const { columns, rows, edition } = this.table;
    const mark = `${edition} ${rows}`;
    if (this.mark === mark) return;
    if (!this.mark.startsWith(`${edition} `) || !this.lanes) { this.lanes = new Map(); this.done = 0; }
    this.mark = mark;
    const [lane, start] = [columns.get("lane"), columns.get("start")];
    for (let n = this.done; n < rows; n += 1) {
      const periods = this.lanes.get(lane.data[n]) ?? { rows: [], data: [], length: 0 };
      periods.rows.push(n);
      periods.data.push(start.data[n]);
      periods.length += 1;
      this.lanes.set(lane.data[n], periods);
    }
    this.done = rows;
  }

  value(name, row) { return this.table.columns.get(name).data[row]; }

  end(row) { return PARTS.reduce((sum, part) => sum + this.value(part, row), this.value("start", row)); }

  // What a lane does then: [part, share of it that is done], or null.
  doing(lane, now) {
    const periods = this.lanes?.get(lane);
    if (!periods || periods.data[0] > now) return null;
    const row = periods.rows[before(periods, now)];
    let from = this.value("start", row);
    for (const part of PARTS) {
      const spent = this.value(part, row);
      if (now < from + spent) return [part, spent > 0 ? (now - from) / spent : 0];
      from += spent;
    }
    return null; // of a run of which only some rounds were sent, or after its last
  }

  // The periods that began within so many rounds before and after a second, as the timeline draws them.
  around(now, rounds, perRound, lanes) {
    this.read();
    const start = this.table.columns.get("start");
    if (!start?.length) return [];
    const wanted = Math.max(1, rounds * perRound * lanes);
    let at = 0;
    while (at < start.length && start.data[at] <= now + 1e-12) at += 1;
    const first = Math.max(0, Math.min(Math.floor(Math.max(0, at - 1) / wanted) * wanted, start.length - wanted));
    return Array.from({ length: Math.min(wanted, start.length - first) }, (_, n) => this.box(first + n));
  }

  box(row) {
    const parts = Object.fromEntries(PARTS.map((part) => [part, this.value(part, row)]));
    return { lane: this.value("lane", row), first: this.value("first", row), last: this.value("last", row), start: this.value("start", row), parts };
  }
}
