// Settings that nobody has run: their seconds, bytes and contraction, from the server's own functions.

import { ask, bytes, el, save, short } from "./util.js";

const WORDS = { tau1: "tau1: steps between uploads", tau2: "tau2: uploads between exchanges", alpha: "alpha: exchanges", servers: "servers", clients: "clients a server", parameters: "numbers in a model" };
const SLIDERS = { tau1: [1, 50], tau2: [1, 20], alpha: [1, 30], servers: [1, 100], clients: [1, 100] };
const RATES = { cpu: "device, FLOP/s", client_server: "client to server, bit/s", server_server: "between servers, bit/s", server_cloud: "server to cloud, bit/s", client_cloud: "client to cloud, bit/s" };
const CHOICES = { scheme: "scheme", averager: "averager", graph: "graph", profile: "latency profile", up: "codec up", down: "codec down", between: "codec between servers" };

export class WhatIf {
  constructor(section) {
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
      answer("seconds", "seconds a round"), answer("iteration", "seconds an iteration"), answer("compute", "of it computing", " s"),
      answer("upload", "uploading", " s"), answer("exchange", "exchanging", " s"), answer("download", "downloading", " s"),
      answer("zeta", "zeta"), answer("contraction", "contraction of a round"), answer("bytes", "bytes a round"), answer("links", "links"));
    this.commands = el("pre", { "data-testid": "what-if-commands" });
    this.profile = el("button", { type: "button", hidden: true, onclick: () => save("what-if.toml", new Blob([this.toml ?? ""], { type: "application/toml" })) }, "what-if.toml");
    section.append(this.form, this.problem, this.answers, el("p", { class: "empty" }, "The same numbers on the command line: "), this.commands, this.profile);
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
    for (const [name, title] of Object.entries(RATES)) this.add(name, title, el("input", { name, type: "number", value: rates[name], min: 1, step: "any" }));
    this.inputs.get("profile").addEventListener("change", () => { this.renew = true; });
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
    const query = Object.fromEntries([...this.inputs].map(([name, input]) => [name, input.value]));
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
    for (const output of this.shown.values()) output.textContent = "–";
  }

  show(found) {
    this.problem.hidden = true;
    if (this.renew) for (const name of Object.keys(RATES)) this.inputs.get(name).value = found.rates[name];
    this.renew = false;
    const say = (key, text, value = null) => {
      this.shown.get(key).textContent = text;
      if (value !== null) this.shown.get(key).dataset.value = value;
    };
    say("seconds", short(found.seconds_per_round, 8), found.seconds_per_round);
    say("iteration", short(found.seconds_per_iteration), found.seconds_per_iteration);
    for (const part of ["compute", "upload", "exchange", "download"]) say(part, short(found[part]), found[part]);
    say("zeta", short(found.zeta), found.zeta);
    say("contraction", short(found.contraction), found.contraction);
    const sum = Object.values(found.bytes_per_round).reduce((a, b) => a + b, 0);
    say("bytes", bytes(sum), sum);
    say("links", String(found.links));
    this.commands.textContent = found.commands.join("\n");
    this.toml = found.profile;
    this.profile.hidden = found.profile === null;
  }
}
