// The one clock of the page: the simulated second that curves, network and timeline show.

const WHOLE = 10; // real seconds of a whole replay at speed 1
const LONGEST = 0.25; // real seconds of a frame: a page that slept goes on from where it was
export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

export class Clock {
  constructor() {
    [this.now, this.end, this.speed] = [0, 0, 1];
    [this.playing, this.loops, this.follows] = [false, false, true];
    this.rows = null; // seconds of the evaluations of the run that is looked at
    this.listeners = [];
  }

  on(listener) { this.listeners.push(listener); }

  tell() { for (const listener of this.listeners) listener(this); }

  // Another run, or more rows of this one; who is at the end stays there.
  take(rows) {
    const end = rows?.length ? rows.data[rows.length - 1] : 0;
    if (rows === this.rows && end === this.end) return;
    [this.rows, this.end] = [rows, end];
    if (this.follows || this.now > end) this.now = end;
    this.tell();
  }

  set(seconds) {
    this.now = Math.min(this.end, Math.max(0, seconds));
    this.follows = this.now >= this.end;
    this.tell();
  }

  // The evaluation that the cursor is at or after, with the part of the way to the next one.
  get row() {
    const { rows, now } = this;
    if (!rows?.length) return 0;
    const n = before(rows, now);
    if (n >= rows.length - 1) return rows.length - 1;
    return n + Math.max(0, (now - rows.data[n]) / (rows.data[n + 1] - rows.data[n] || 1));
  }

  setRow(row) {
    const { rows } = this;
    if (!rows?.length) return;
    const n = Math.min(rows.length - 1, Math.max(0, Math.floor(row)));
    const next = Math.min(rows.length - 1, n + 1);
    this.set(rows.data[n] + (row - n) * (rows.data[next] - rows.data[n]));
  }

  step(direction) {
    this.pause();
    const row = this.row;
    this.setRow(direction > 0 ? Math.floor(row + 1e-9) + 1 : Math.ceil(row - 1e-9) - 1);
  }

  faster(direction) {
    const n = SPEEDS.indexOf(this.speed) + direction;
    this.speed = SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, n))];
    this.tell();
  }

  toggle() { if (this.playing) this.pause(); else this.play(); }

  pause() {
    cancelAnimationFrame(this.frame);
    this.playing = false;
    this.tell();
  }

  play() {
    if (!(this.end > 0)) return;
    if (this.now >= this.end) this.now = 0;
    this.playing = true;
    this.follows = false;
    let last = performance.now();
    const frame = (time) => {
      const spent = Math.min(LONGEST, Math.max(0, (time - last) / 1000));
      last = time;
      this.now += (spent / WHOLE) * this.speed * this.end;
      if (this.now >= this.end) {
        if (!this.loops) { this.set(this.end); this.pause(); return; }
        this.now %= this.end;
      }
      this.tell();
      this.frame = requestAnimationFrame(frame);
    };
    this.frame = requestAnimationFrame(frame);
    this.tell();
  }
}

// The last place whose value is not above; values never fall.
export function before({ data, length }, value) {
  let [low, high] = [0, length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (data[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Where `from` has a value, `to` between its rows; both are columns of one table.
export function translate(from, to, value) {
  if (!from?.length || !to?.length) return null;
  const n = before(from, value);
  const next = Math.min(from.length - 1, n + 1);
  const width = from.data[next] - from.data[n];
  const share = width > 0 ? Math.min(1, Math.max(0, (value - from.data[n]) / width)) : 0;
  return to.data[n] + share * (to.data[next] - to.data[n]);
}
