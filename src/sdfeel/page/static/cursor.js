// The bar of the time cursor: play, step, speed, loop; and its keys.

import { SPEEDS } from "./clock.js";
import { el } from "./util.js";
import { seconds } from "./units.js";

export class CursorBar {
  constructor(node, clock, choice) {
    Object.assign(this, { node, clock, choice });
    const button = (testid, label, text, act) => el("button", { type: "button", "data-testid": testid, "aria-label": label, title: label, onclick: act }, text);
    this.play = button("play", "Play (space)", "play", () => clock.toggle());
    this.slider = el("input", {
      type: "range", min: 0, max: 0, step: "any", value: 0, class: "grow", "data-testid": "replay", "aria-label": "Time cursor, by evaluations",
      oninput: () => { if (clock.playing) clock.pause(); clock.setRow(Number(this.slider.value)); },
    });
    this.when = el("output", { "data-testid": "replay-at" });
    this.speed = el("select", { "data-testid": "speed", "aria-label": "Speed", onchange: () => { clock.speed = Number(this.speed.value); } },
      ...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === clock.speed }, `${{ 0.25: "¼", 0.5: "½" }[speed] ?? speed}×`)));
    this.loop = el("input", { type: "checkbox", "data-testid": "loop", onchange: () => { clock.loops = this.loop.checked; } });
    node.append(
      button("step-back", "One evaluation back (,)", "◂", () => clock.step(-1)), this.play,
      button("step", "One evaluation on (.)", "▸", () => clock.step(1)), this.slider, this.when, this.speed,
      el("label", {}, this.loop, "loop"));
    clock.on(() => this.draw());
    document.addEventListener("keydown", (event) => this.key(event));
    this.draw();
  }

  draw() {
    const { clock, slider } = this;
    this.node.hidden = !(clock.end > 0);
    const last = Math.max(0, (clock.rows?.length ?? 0) - 1);
    if (Number(slider.max) !== last) slider.max = last;
    const row = clock.row;
    slider.value = row;
    const steps = this.choice.run?.column("iteration");
    const iteration = steps?.length ? steps.data[Math.min(steps.length - 1, Math.floor(row + 1e-9))] : 0;
    const text = `iteration ${iteration}, ${seconds(clock.now)}`;
    if (this.when.textContent !== text) this.when.textContent = text;
    this.node.dataset.seconds = clock.now;
    if (!clock.playing) slider.setAttribute("aria-valuetext", text);
    const name = clock.playing ? "pause" : "play";
    if (this.play.textContent !== name) this.play.textContent = name;
    if (Number(this.speed.value) !== clock.speed) this.speed.value = clock.speed;
    this.loop.checked = clock.loops;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    if (target !== this.slider && target.closest("input:not([type=checkbox]), select, textarea")) return;
    if (event.key === " " && target.closest("button, a, summary, input, [role=button]") && target !== this.slider) return;
    const { clock } = this;
    const moves = {
      " ": () => clock.toggle(), ",": () => clock.step(-1), ".": () => clock.step(1),
      "[": () => clock.faster(-1), "]": () => clock.faster(1), l: () => { clock.loops = !clock.loops; clock.tell(); },
      ...(target === this.slider ? { ArrowLeft: () => clock.step(-1), ArrowRight: () => clock.step(1), Home: () => clock.set(0), End: () => clock.set(clock.end) } : {}),
    };
    if (!moves[event.key] || this.node.hidden) return;
    moves[event.key]();
    event.preventDefault();
  }
}
