// Which run, or the deployment, is looked at: one choice for network, time and editor.

import { el, keepIfSame } from "./util.js";

export const DEPLOYMENT = "/deployment";

export class Choice {
  constructor(store) {
    this.store = store;
    this.name = "";
    this.wanted = ""; // by the user, or by the address
    this.listeners = [];
    this.lists = [];
  }

  on(listener) { this.listeners.push(listener); }

  get run() { return this.store.runs.get(this.name) ?? null; }

  get live() { return this.name === DEPLOYMENT; }

  names() {
    const runs = [...this.store.runs.values()].filter((run) => !run.about.real).map((run) => run.name);
    return this.store.deployment?.edges?.length ? [DEPLOYMENT, ...runs] : runs;
  }

  pick(name) {
    this.wanted = name;
    this.update();
  }

  // What was wanted if it is there; else what it is, once that has rows; else the best there is.
  update() {
    const names = this.names();
    const before = this.name;
    if (names.includes(this.wanted)) this.name = this.wanted;
    else if (!names.includes(this.name) || (this.run && !this.run.about.rows)) this.name = this.best(names);
    for (const list of this.lists) this.fill(list, names);
    if (this.name !== before) for (const listener of this.listeners) listener();
  }

  best(names) {
    if (names[0] === DEPLOYMENT) return DEPLOYMENT;
    const rank = (name) => {
      const { about } = this.store.runs.get(name);
      return [about.rows > 0, about.scheme === "sd-feel", about.best?.accuracy ?? -1, -(about.best?.loss ?? Infinity)];
    };
    const better = (a, b) => { const n = a.findIndex((value, i) => value !== b[i]); return n >= 0 && a[n] > b[n]; };
    return names.reduce((best, name) => (best && !better(rank(name), rank(best)) ? best : name), "");
  }

  // A list to choose from; all of them show the same.
  select(testid) {
    const list = el("select", { "data-testid": testid, onchange: () => this.pick(list.value) });
    this.lists.push(list);
    return list;
  }

  fill(list, names) {
    keepIfSame(list, names, () => names.map((name) => el("option", { value: name }, name === DEPLOYMENT ? "the deployment" : name)));
    if (list.value !== this.name) list.value = this.name;
  }
}
