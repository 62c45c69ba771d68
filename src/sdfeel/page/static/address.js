// The state of the view in the address: who opens the link sees the same.

const SOON = 250; // milliseconds between a change and the address that has it

export class Address {
  constructor() {
    this.parts = new Map(); // name: [get, set]; get gives "" for what is as at first
    this.given = parse(location.hash);
    addEventListener("hashchange", () => this.changed());
    for (const kind of ["change", "input", "click", "pointerup", "keyup"]) document.addEventListener(kind, () => this.soon());
  }

  // Bind a part; what the address said at first is set at once.
  bind(name, get, set) {
    this.parts.set(name, [get, set]);
    if (this.given.values.has(name)) set(this.given.values.get(name));
  }

  changed() {
    const { view, values } = parse(location.hash);
    this.given.view = view;
    for (const [name, value] of values) this.parts.get(name)?.[1](value);
    this.soon();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), SOON);
  }

  write() {
    const values = [...this.parts].map(([name, [get]]) => [name, String(get() ?? "")]).filter(([, value]) => value !== "");
    const text = [this.given.view, ...values.map(([name, value]) => `${name}=${encodeURIComponent(value)}`)].join("&");
    if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  // The browser knows no element of that name where values follow.
  scroll() {
    if (this.given.values.size && this.given.view) document.getElementById(this.given.view)?.scrollIntoView();
  }
}

function parse(hash) {
  const [first, ...rest] = hash.slice(1).split("&");
  const isView = first !== "" && !first.includes("=");
  const pairs = (isView ? rest : [first, ...rest]).filter((pair) => pair.includes("="));
  return { view: isView ? first : "", values: new Map(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), decode(pair.slice(pair.indexOf("=") + 1))])) };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
