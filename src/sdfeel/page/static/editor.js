// Edit the network by mouse or keys: what another graph, or other clusters, would give.

import { DEPLOYMENT } from "./choice.js";
import { Board } from "./board.js";
import { ask, bytes, el, keepIfSame, short } from "./util.js";
import { seconds, three } from "./units.js";

const NUMBERS = { alpha: "exchanges (alpha)", tau1: "steps (tau1)", tau2: "uploads (tau2)" };

export class Editor {
  constructor(section, choice) {
    this.choice = choice;
    this.words = []; // the edits so far, in order
    this.settings = {};
    this.board = new Board((word) => this.edit(word));
    const button = (testid, text, act, about = null) => el("button", { type: "button", "data-testid": testid, title: about, onclick: act }, text);
    this.undo = button("edit-undo", "undo", () => { this.words.pop(); this.ask(); });
    this.again = button("edit-again", "start again", () => this.restart());
    this.from = el("span", { class: "empty" });
    this.inputs = Object.fromEntries(Object.entries(NUMBERS).map(([name, title]) => [name, el("input", {
      type: "number", min: 1, max: 200, "data-testid": `edit-${name}`, "aria-label": title, oninput: () => this.change(name),
    })]));
    this.averager = el("select", { "data-testid": "edit-averager", onchange: () => { this.settings.averager = this.averager.value; this.ask(); } });
    const list = (testid, label) => el("select", { "data-testid": testid, "aria-label": label });
    [this.one, this.other, this.near, this.client, this.target] = [["edit-a", "One end of the link"], ["edit-b", "Other end of the link"], ["edit-near", "Server that the new one is linked to"], ["edit-client", "Client to move"], ["edit-target", "Server that it moves to"]].map(([id, label]) => list(id, label));
    this.problem = el("p", { class: "note bad", role: "alert", hidden: true });
    this.answers = el("div", { "data-testid": "edit-answers", "aria-live": "polite" });
    this.toml = el("pre", { "data-testid": "edit-toml", tabindex: 0, role: "region", "aria-label": "The network as TOML" });
    this.command = el("pre", { "data-testid": "edit-command", tabindex: 0, role: "region", "aria-label": "The network as commands" });
    const link = (sign) => () => this.edit(`${sign}${this.one.value}-${this.other.value}`);
    section.append(
      el("p", {}, "Drag from one server to another to add or cut a link, drag a client to another server, press a link to cut it. Keys: arrows go from server to server, enter begins a link and ends it, s adds a server."),
      el("div", { class: "bar" }, this.from, this.undo, this.again, button("edit-arrange", "arrange", () => { this.board.arrange(); this.board.draw(); }, "Place the servers anew")),
      el("div", { class: "bar" }, el("label", {}, "averager", this.averager), ...Object.entries(this.inputs).map(([name, input]) => el("label", {}, NUMBERS[name], input))),
      this.problem,
      el("div", { class: "two" }, this.board.node, this.answers),
      el("div", { class: "bar" },
        el("span", { class: "group" }, "link ", this.one, " – ", this.other, button("edit-add", "add", link("+")), button("edit-cut", "cut", link("-"))),
        el("span", { class: "group" }, "new server at ", this.near, button("edit-server", "add a server", () => this.edit(`s${this.near.value}`))),
        el("span", { class: "group" }, "client ", this.client, " to ", this.target, button("edit-move", "move", () => this.edit(`m${this.client.value}-${this.target.value}`)))),
      el("div", { class: "bar" }, button("copy-toml", "copy as TOML", (event) => copy(this.toml, event.target)), button("copy-command", "copy as command", (event) => copy(this.command, event.target))),
      el("details", {}, el("summary", {}, "TOML and commands"), this.toml, this.command));
  }

  bind(address) {
    address.bind("edits", () => this.words.join(" "), (text) => { this.wanted = text.split(" ").filter(Boolean); });
  }

  // Another run: its own network, without the edits of the one before.
  restart() {
    const isFirst = this.of === undefined;
    this.of = this.choice.name;
    this.words = isFirst ? this.wanted ?? [] : [];
    this.settings = {};
    this.start = null;
    this.board.arrange();
    this.ask();
  }

  draw() {
    if (this.of !== this.choice.name) this.restart();
    else this.board.draw();
  }

  edit(word) {
    this.words.push(word);
    this.ask();
  }

  change(name) {
    this.settings[name] = this.inputs[name].value;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 60);
  }

  async ask() {
    const query = { run: this.of, edits: this.words.join(" "), ...this.settings };
    const number = (this.number ?? 0) + 1;
    this.number = number;
    try {
      this.start ??= await ask("edited", { run: this.of });
      const answer = query.edits || Object.keys(this.settings).length ? await ask("edited", query) : this.start;
      if (number === this.number) this.show(answer);
    } catch (problem) {
      if (number !== this.number) return;
      this.refuse(problem.message);
    }
  }

  // What cannot be is not done: the edit goes.
  refuse(sentence) {
    this.problem.textContent = sentence;
    this.problem.hidden = false;
    if (this.start && this.words.length) this.words.pop();
    this.undo.disabled = !this.words.length;
  }

  show(answer) {
    this.problem.hidden = !(answer.problem ?? answer.clock_problem);
    this.problem.textContent = answer.problem ?? answer.clock_problem ?? "";
    this.from.textContent = this.of === DEPLOYMENT ? "from the deployment" : this.of ? `from ${this.of}` : "from the paper's ring";
    this.undo.disabled = !this.words.length;
    const { members, names, clients } = answer.network;
    const name = (server) => names[server] ?? String(server);
    const servers = members.map((_, n) => [n, name(n)]);
    const isFirst = !this.one.options.length;
    for (const list of [this.one, this.other, this.near, this.target]) options(list, servers);
    if (isFirst && servers.length > 1) this.other.value = "1";
    options(this.client, members.flat().sort((a, b) => a - b).slice(0, 1000).map((c) => [c, clients[c] ?? String(c)]));
    options(this.averager, answer.averagers.map((each) => [each, each]));
    this.averager.value = answer.settings.averager;
    for (const [key, input] of Object.entries(this.inputs)) if (input !== document.activeElement) input.value = answer.settings[key];
    this.board.show(answer.network, name);
    [this.toml.textContent, this.command.textContent] = [answer.toml ?? "", answer.command ?? ""];
    keepIfSame(this.answers, [answer, this.start], () => [table(answer, this.start)]);
  }
}

function options(list, pairs) {
  const before = list.value;
  keepIfSame(list, pairs, () => pairs.map(([value, label]) => el("option", { value }, label)));
  if (before && [...list.options].some((option) => option.value === before)) list.value = before;
}

const sum = (found) => (found ? Object.values(found).reduce((a, b) => a + b, 0) : null);
const ROWS = [
  ["zeta", "zeta", (answer) => answer.zeta, three], ["contraction", "contraction of a round", (answer) => answer.contraction, three],
  ["seconds", "seconds of a round", (answer) => answer.seconds_per_round, seconds], ["bytes", "bytes of a round", (answer) => sum(answer.bytes_per_round), bytes],
  ["links", "links", (answer) => answer.network.links.length, short],
  ["liars", "lying servers survived", (answer) => answer.liars_survived?.connected, short],
  ["liars-trimmed", "the same, averager trimmed", (answer) => answer.liars_survived?.trimmed, short],
];

function table(answer, start) {
  const cell = (value, show, testid) => el("td", { "data-testid": testid, "data-value": value ?? "" }, value === null || value === undefined ? "–" : show(value));
  return el("table", {}, el("tr", {}, el("th", { scope: "col" }, "numbers"), el("th", { scope: "col" }, "now"), el("th", { scope: "col" }, "at first")),
    ...ROWS.map(([key, title, value, show]) => {
      const [now, before] = [value(answer), value(start)];
      return el("tr", { class: now === before ? null : "changed" }, el("th", { scope: "row" }, title), cell(now, show, `edit-${key}`), cell(before, show, null));
    }));
}

// The clipboard where the browser lets a page have it; else the text is selected.
async function copy(node, button) {
  const text = button.textContent;
  node.closest("details").open = true;
  try {
    await navigator.clipboard.writeText(node.textContent);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(node);
    button.textContent = "selected: copy with Ctrl+C";
  }
  setTimeout(() => { button.textContent = text; }, 2000);
}
