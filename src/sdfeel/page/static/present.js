// For a lecture: one view at a time in large type, driven by keys.

import { el } from "./util.js";

const KEYS = [
  ["space", "play and pause"], [", and .", "one evaluation back, on"], ["[ and ]", "slower, faster"], ["l", "loop"],
  ["p", "begin and end the presentation"], ["← and →", "the view before, the next one"], ["1 to 9", "that view"],
  ["f", "full screen"], ["?", "these keys"], ["Escape", "end"],
];

export class Presentation {
  constructor(header, redraw) {
    this.redraw = redraw;
    this.on = false;
    this.button = el("button", { type: "button", "data-testid": "present", "aria-pressed": "false", title: "Large type, one view at a time (p)", onclick: () => this.set(!this.on) }, "present");
    this.keys = el("dialog", { "data-testid": "keys", "aria-label": "Keys" }, el("table", {}, ...KEYS.map(([key, what]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", { class: "words" }, what)))),
      el("form", { method: "dialog" }, el("button", {}, "close")));
    header.append(el("button", { type: "button", title: "Keys (?)", onclick: () => this.keys.showModal() }, "keys"), this.button);
    document.body.append(this.keys);
    document.addEventListener("keydown", (event) => this.key(event));
    for (const link of document.querySelectorAll("nav a")) {
      link.addEventListener("click", (event) => { if (this.on) { event.preventDefault(); this.show(link.hash.slice(1)); } });
    }
  }

  bind(address) {
    address.bind("present", () => (this.on ? this.view : ""), (view) => this.set(true, view));
  }

  get views() { return [...document.querySelectorAll("main > section")].filter((section) => !section.hidden).map((section) => section.id); }

  // The view that is at the top of the window is where it begins.
  set(on, view = null) {
    const seen = this.views.find((id) => document.getElementById(id).getBoundingClientRect().bottom > innerHeight / 3);
    this.on = on;
    this.button.setAttribute("aria-pressed", String(on));
    document.documentElement.toggleAttribute("data-present", on);
    if (on) this.show(this.views.includes(view) ? view : seen);
    else {
      for (const section of document.querySelectorAll("main > section")) section.classList.remove("shown");
      document.getElementById(this.view)?.scrollIntoView();
      this.redraw();
    }
  }

  show(view) {
    if (!view) return;
    this.view = view;
    for (const section of document.querySelectorAll("main > section")) section.classList.toggle("shown", section.id === view);
    for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("aria-current", link.hash === `#${view}`);
    scrollTo(0, 0);
    this.redraw();
  }

  turn(step) {
    const { views } = this;
    this.show(views[(views.indexOf(this.view) + step + views.length) % views.length]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.keys.open) return;
    if (event.target.closest("input, select, textarea, [role=button], [role=img], g[tabindex]")) return;
    const { key } = event;
    const acts = { p: () => this.set(!this.on), "?": () => this.keys.showModal() };
    if (this.on) {
      Object.assign(acts, {
        ArrowLeft: () => this.turn(-1), ArrowRight: () => this.turn(1), Escape: () => this.set(false),
        f: () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()),
      });
      if (/^[1-9]$/.test(key)) acts[key] = () => this.show(this.views[Number(key) - 1]);
    }
    if (!acts[key]) return;
    acts[key]();
    event.preventDefault();
  }
}
