// Settings that nobody has run: their seconds, bytes and contraction, from the server's own functions.

import { Chart } from "./plot.js";
import { ask, bytes, el, keepIfSame, look, save, short, svg } from "./util.js";
import { plain, quantity, seconds as inSeconds, three } from "./units.js";

const WORDS = { tau1: "tau1: steps between uploads", tau2: "tau2: uploads between exchanges", alpha: "alpha: exchanges", servers: "servers", clients: "clients a server", parameters: "numbers in a model" };
const SLIDERS = { tau1: [1, 50], tau2: [1, 20], alpha: [1, 30], servers: [1, 100], clients: [1, 100] };
const RATES = { cpu: "speed of a device", client_server: "client to server", server_server: "between servers", server_cloud: "server to cloud", client_cloud: "client to cloud" };
const UNITS = { cpu: "FLOP/s" }; // of the others bit/s
const CHOICES = { scheme: "scheme", averager: "averager", graph: "graph of the servers", profile: "latency profile", up: "codec, clients to servers", down: "codec, servers to clients", between: "codec between servers" };

const AS_PLANNED = "as planned";
const OF_A_PLAN = ["scheme", "servers", "clients", "parameters"]; // a plan has its own, which stay

export class WhatIf {
  constructor(section) {
    this.which = el("select", { "data-testid": "what-if-plan", onchange: () => this.renewAll() });
    this.plans = el("div", { class: "bar", hidden: true }, el("label", {}, "start from", this.which));
    this.chart = new Chart("plan", []);
    this.story = el("div", { "data-testid": "what-if-story" });
    this.curves = el("div", { hidden: true, "data-testid": "what-if-curves" }, el("h3", {}, "What the plan's pilot predicts"), this.chart.node, this.story);
    this.inputs = new Map();
    this.form = el("form", { class: "form", onsubmit: (event) => event.preventDefault() });
    this.problem = el("p", { class: "note bad", role: "alert", hidden: true });
    this.shown = new Map();
    const answer = (key, title, unit = "") => {
      const value = el("output", { "data-testid": `what-if-${key}` }, "…");
      this.shown.set(key, value);
      return el("div", {}, el("dt", {}, title), el("dd", {}, value, unit));
    };
    this.answers = el("dl", { class: "answers" },
      answer("seconds", "time of a round"), answer("iteration", "time of an iteration"), answer("compute", "of a round: computing"),
      answer("upload", "uploading"), answer("exchange", "exchanging"), answer("download", "downloading"),
      answer("waiting", "waiting"),
      answer("zeta", "zeta"), answer("contraction", "contraction of a round"), answer("bytes", "bytes a round"), answer("links", "links"));
    this.commands = el("pre", { "data-testid": "what-if-commands" });
    this.profile = el("button", { type: "button", hidden: true, onclick: () => save("what-if.toml", new Blob([this.toml ?? ""], { type: "application/toml" })) }, "what-if.toml");
    this.same = el("p", { class: "empty" }, "The same numbers on the command line: ");
    section.append(this.plans, this.form, this.problem, this.answers, this.curves, this.same, this.commands, this.profile);
    this.start();
  }

  async start() {
    const { numbers, words, rates, values } = await ask("choices");
    for (const [name, title] of Object.entries(CHOICES)) {
      this.add(name, title, el("select", { name }, ...words[name].map((word) => el("option", { value: word, selected: word === values[name] }, word))));
    }
    for (const [name, title] of Object.entries(WORDS)) {
      const { value, least, most } = numbers[name];
      this.add(name, title, el("input", { name, type: "number", value, min: least, max: most, step: 1 }), SLIDERS[name]);
    }
    this.add("spread", "fastest device over slowest", el("input", { name: "spread", type: "number", value: 1, min: 1, max: 1000, step: "any" }), [1, 20]);
    for (const [name, title] of Object.entries(RATES)) this.add(name, title, el("input", { name, type: "text", inputmode: "decimal", value: rateText(name, rates[name]) }));
    this.inputs.get("profile").addEventListener("change", () => { this.renew = true; });
    for (const name of ["graph", "profile"]) this.inputs.get(name).prepend(el("option", { value: AS_PLANNED, hidden: true }, AS_PLANNED));
    this.ready = true;
    this.ask();
  }

  // The first plan that is there when the page opens is taken; later ones are only offered.
  offer(names) {
    if (!this.ready) return;
    const first = this.offered === undefined;
    this.offered = names;
    this.plans.hidden = !names.length;
    keepIfSame(this.which, names, () => {
      const before = first ? names[0] : this.which.value;
      return [["", "these settings"], ...names.map((name) => [name, `the plan ${name}`])].map(([value, label]) =>
        el("option", { value, selected: value === (before ?? "") }, label));
    });
    if (this.which.value !== (this.of ?? "")) this.renewAll();
  }

  // Another plan, or none: everything as it has it.
  renewAll() {
    this.of = this.which.value;
    for (const name of ["graph", "profile"]) this.inputs.get(name).querySelector(`[value="${AS_PLANNED}"]`).hidden = !this.of;
    for (const name of OF_A_PLAN) this.inputs.get(name).disabled = Boolean(this.of);
    for (const name of ["servers", "clients"]) this.form.querySelector(`[data-testid=slide-${name}]`).disabled = Boolean(this.of);
    this.fresh = true;
    this.ask();
  }

  add(name, title, input, range = null) {
    input.dataset.testid = `set-${name}`;
    const label = el("label", {}, el("span", {}, title), input);
    if (range) {
      const slider = el("input", { type: "range", min: range[0], max: range[1], value: input.value, step: 1, "data-testid": `slide-${name}`, "aria-label": title });
      slider.addEventListener("input", () => { input.value = slider.value; this.soon(); });
      input.addEventListener("input", () => { slider.value = input.value; });
      input.before(slider);
      label.classList.add("slides");
    }
    input.addEventListener("input", () => this.soon());
    this.inputs.set(name, input);
    this.form.append(label);
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 60);
  }

  async ask() {
    const query = this.fresh ? {} : Object.fromEntries([...this.inputs].map(([name, input]) => [name, name in RATES ? plain(input.value) : input.value]));
    if (this.of) query.plan = this.of;
    if (this.renew) for (const name of Object.keys(RATES)) delete query[name];
    const number = (this.number ?? 0) + 1;
    this.number = number;
    try {
      const found = await ask("what-if", query);
      if (number === this.number) this.show(found);
    } catch (problem) {
      if (number === this.number) this.refuse(problem.message);
    }
  }

  refuse(sentence) {
    this.problem.textContent = sentence;
    this.problem.hidden = false;
    for (const output of this.shown.values()) { output.textContent = "–"; delete output.dataset.value; }
    this.curves.hidden = true;
  }

  put(name, value) {
    const input = this.inputs.get(name);
    input.value = name in RATES ? rateText(name, value) : value ?? "";
    const slider = this.form.querySelector(`[data-testid=slide-${name}]`);
    if (slider && value !== null) slider.value = value;
  }

  draw() {
    const plan = this.found?.plan;
    this.curves.hidden = !plan;
    if (!plan) return;
    const column = (values) => ({ data: Float64Array.from(values), length: values.length });
    this.chart.titles = { x: "simulated seconds", y: plan.measure };
    this.chart.curves = Object.entries(plan.curves).map(([name, { x, y }], n) => ({ name, label: name, look: { ...look(n), dash: n === 2 ? "2 3" : "" }, x: column(x), y: column(y) }));
    this.chart.draw();
    const goal = plan.target === null ? "" : `${plan.measure} ${short(plan.measure === "accuracy" ? 1 - plan.target : plan.target, 4)}`;
    const says = [];
    if (goal) {
      says.push(`To ${goal}: planned ${short(plan.seconds, 4)} s; this schedule ${plan.reached === null ? "does not get there" : `${short(plan.reached, 4)} s by the pilot`}.`);
    }
    keepIfSame(this.story, [says, plan.reasons, document.documentElement.dataset.theme], () => [legend(this.chart.curves),
      ...says.map((text) => el("p", {}, text)), ...plan.reasons.map((text) => el("p", { class: "empty" }, text))]);
  }

  show(found) {
    this.problem.hidden = true;
    this.found = found;
    if (this.fresh) for (const [name, value] of Object.entries(found.settings)) this.put(name, value);
    if (this.fresh) this.put("spread", 1);
    if (this.renew || this.fresh) for (const name of Object.keys(RATES)) this.put(name, found.rates[name]);
    this.renew = this.fresh = false;
    const say = (key, text, value = null) => {
      this.shown.get(key).textContent = text;
      if (value !== null) this.shown.get(key).dataset.value = value;
    };
    say("seconds", inSeconds(found.seconds_per_round), found.seconds_per_round);
    say("iteration", inSeconds(found.seconds_per_iteration), found.seconds_per_iteration);
    for (const part of ["compute", "upload", "exchange", "download", "waiting"]) say(part, inSeconds(found[part]), found[part]);
    say("zeta", three(found.zeta), found.zeta);
    say("contraction", three(found.contraction), found.contraction);
    const sum = Object.values(found.bytes_per_round).reduce((a, b) => a + b, 0);
    say("bytes", bytes(sum), sum);
    say("links", String(found.links));
    this.commands.textContent = found.commands.join("\n");
    this.same.textContent = found.commands.length ? "The same numbers on the command line: " : "These are the plan's own network and clock, from its plan.json.";
    this.commands.hidden = !found.commands.length;
    this.draw();
    this.toml = found.profile;
    this.profile.hidden = found.profile === null;
  }
}

// As many digits as it has: what is read back is the very same number.
function rateText(name, value) {
  if (value === null || value === undefined) return "";
  const text = quantity(value, UNITS[name] ?? "bit/s");
  return Number(plain(text)) === value ? text : String(value);
}

function legend(curves) {
  return el("ul", { class: "legend" }, ...curves.map(({ label, look: { colour, dash } }) => el("li", {},
    svg("svg", { width: 34, height: 10, "aria-hidden": true }, svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: `var(--${colour})`, "stroke-width": 2.5, "stroke-dasharray": dash || null })), ` ${label}`)));
}
