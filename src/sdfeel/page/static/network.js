// The network as a stage: servers with their clients, links, and models that travel at the cursor's second.

import { DEPLOYMENT } from "./choice.js";
import { linkShade, nodeShade, onTop, scaleBar } from "./colours.js";
import { Crowd } from "./crowd.js";
import { placeAll } from "./geometry.js";
import { liveWorld, runWorld } from "./worlds.js";
import { ask, bytes, colour, el, hideTip, keepIfSame, showTip, svg, watchSeen, zoom } from "./util.js";
import { percent, three } from "./units.js";

const NAMED = 60; // servers whose names are drawn
const MOST_LINES = 12; // of a tip
const EVERY = 80; // milliseconds between two colours of a replay: models on their way move at every frame

export class NetworkView {
  constructor(section, store, clock, choice) {
    Object.assign(this, { store, clock, choice });
    this.known = new Map();
    this.coloured = -Infinity;
    this.colours = el("select", { "data-testid": "colour-by", onchange: () => this.paint() },
      ...[["accuracy", "test accuracy"], ["loss", "test loss"], ["", "nothing"]].map(([value, label]) => el("option", { value }, label)));
    this.picture = svg("svg", { role: "group", "aria-label": "Network of edge servers" });
    this.crowd = new Crowd();
    this.facts = el("div", { "data-testid": "network-facts" });
    this.words = el("p", { class: "empty" });
    this.stage = el("div", { class: "stage", "data-testid": "stage" }, this.picture, this.crowd.canvas);
    this.both = el("div", { class: "two" }, this.stage, this.facts);
    section.append(el("div", { class: "bar" }, el("label", {}, "show the network of", choice.select("network-of")),
      el("label", {}, "colour servers by", this.colours)), this.words, this.both);
    this.picture.addEventListener("pointerleave", hideTip);
    clock.on(() => this.paint());
    this.isSeen = watchSeen(section, () => this.paint());
    new ResizeObserver(() => { this.size = null; this.paint(); }).observe(this.stage);
  }

  async draw() {
    const { name } = this.choice;
    this.both.hidden = !name;
    if (!name) { this.words.textContent = "No run yet, so no network."; return; }
    this.words.textContent = "";
    if (name === DEPLOYMENT) { this.show(liveWorld(this.store.deployment)); return; }
    const run = this.store.runs.get(name);
    this.store.fetchEvents(run).then(() => this.paint());
    const mark = JSON.stringify([run.about.rows > 0, run.about.trace_edition]);
    if (this.known.get(name)?.mark !== mark) {
      const before = this.known.get(name);
      this.known.set(name, { ...before, mark });
      try {
        this.known.set(name, { mark, graph: await ask("network", { run: name }) });
      } catch (problem) {
        this.known.set(name, { mark, problem: problem.message });
      }
    }
    if (this.choice.name !== name) return;
    const { graph, problem } = this.known.get(name);
    this.both.hidden = !graph;
    this.words.textContent = graph ? "" : problem ?? "asking…";
    if (!graph) return;
    this.show(runWorld(run, graph));
  }

  show(world) {
    world.mark = JSON.stringify([world.key, world.hub, world.nodes.map((n) => [n.name, n.clients]), world.links.map((l) => l.name)]);
    this.world = world;
    this.paint();
  }

  // The evaluation that the cursor shows.
  moment() {
    const { run } = this.world;
    if (!run?.metrics.rows) return null;
    const n = Math.floor(this.clock.row + 1e-9);
    const value = (name) => run.metrics.columns.get(name)?.data[n];
    return { n, iteration: value("iteration"), disagreement: value("disagreement"), traced: traceRow(run, value("iteration")) };
  }

  // A pixel of the stage is one of the screen, larger in larger type.
  measure() {
    const scale = zoom();
    const width = Math.max(280, Math.round((this.stage.clientWidth || 700) / scale));
    const height = Math.round(Math.min(560, (0.78 * innerHeight) / scale, Math.max(320, 0.72 * width)));
    this.size = { width, height, scale };
  }

  paint() {
    const { world } = this;
    if (!world || world.key !== this.choice.name || (this.clock.playing && !this.isSeen())) return;
    if (!this.clock.playing || !this.size) this.measure();
    const { width, height, scale } = this.size;
    const mark = `${world.mark} ${document.documentElement.dataset.theme} ${width} ${height} ${scale}`;
    if (this.mark !== mark) {
      this.mark = mark;
      this.places = placeAll(world, width, height);
      this.stage.dataset.layout = this.places.kind;
      this.crowd.resize(width, height, scale);
      this.build(width, height);
      this.painted = "";
    }
    const moment = this.moment();
    const shown = JSON.stringify([moment, this.clock.playing, this.colours.value, world.live && this.store.deployment.edges, world.run?.trace.changes]);
    const time = performance.now();
    if (this.painted !== shown && !(this.clock.playing && time - this.coloured < EVERY)) {
      [this.painted, this.coloured] = [shown, time];
      this.colour(world, moment);
    }
    const { now } = this.clock;
    const perClient = world.run?.laneKind === "client";
    const doing = (n) => (world.run && !perClient ? world.run.moments.doing(n, now) : null);
    this.crowd.draw(this.places, world, doing, world.graph?.exchanges ?? 1);
  }

  build(width, height) {
    const { nodes, links, hub } = this.world;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.lines = links.map((link, n) => {
      const { from: [x1, y1], to: [x2, y2], bend } = this.places.ways[n];
      const about = { "data-link": link.name, onpointermove: (event) => this.tipLink(n, event), onpointerleave: hideTip };
      return bend ? svg("path", { d: `M${x1} ${y1}Q${bend[0]} ${bend[1]} ${x2} ${y2}`, fill: "none", ...about }) : svg("line", { x1, y1, x2, y2, ...about });
    });
    const spokes = hub ? nodes.map((_, n) => svg("line", { x1: this.places.points[n][0], y1: this.places.points[n][1], x2: this.places.hub[0], y2: this.places.hub[1], stroke: colour("line"), "stroke-width": 2, "data-spoke": n })) : [];
    this.spots = nodes.map((node, n) => this.node(node, n));
    this.picture.replaceChildren(...spokes, ...this.lines, ...(hub ? [cloud(this.places.hub, hub)] : []), ...this.spots.map((spot) => spot.group));
  }

  node(node, n) {
    const [[x, y], radius] = [this.places.points[n], this.places.radii[n]];
    const circle = svg("circle", { cx: x, cy: y, r: radius.toFixed(1), stroke: colour("ink"), "stroke-width": 1.5 });
    const group = svg("g", {
      "data-server": node.name, tabindex: n ? -1 : 0, role: "img", onkeydown: (event) => this.key(n, event), onpointermove: (event) => this.tipNode(n, event),
      onpointerleave: hideTip, onfocus: (event) => this.tipNode(n, event), onblur: hideTip,
    }, circle);
    let text = null;
    if (this.world.nodes.length <= NAMED) {
      const name = node.name.slice(0, 10);
      const inside = 3.7 * name.length < radius;
      text = svg("text", { x, y: inside ? y + 4.5 : y + radius + 14, "text-anchor": "middle", "font-size": 12, class: inside ? null : "beside" }, name);
      if (!inside) text.setAttribute("fill", colour("ink"));
      group.append(text);
    }
    return { group, circle, text };
  }

  // One stop of the tab key; arrows go from server to server.
  key(n, event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const next = (n + step + this.spots.length) % this.spots.length;
    this.spots.forEach((spot, m) => spot.group.setAttribute("tabindex", m === next ? 0 : -1));
    this.spots[next].group.focus();
    event.preventDefault();
  }

  colour(world, moment) {
    world.read(moment);
    const most = world.mostApart();
    const widest = Math.max(...world.links.map((link) => link.bytes), 1e-12);
    const [soft, bad, panel] = ["soft", "bad", "panel"].map(colour);
    // Many links leave each less room.
    const [least, wide] = [Math.min(1.2, 300 / world.links.length), Math.min(4.8, 300 / world.links.length)];
    world.links.forEach((link, n) => {
      const line = this.lines[n];
      const known = Number.isFinite(link.apart);
      put(line, "stroke", link.up ? (known ? linkShade(link.apart / most) : soft) : bad);
      put(line, "stroke-width", (least + wide * (link.bytes / widest)).toFixed(2));
      put(line, "stroke-dasharray", link.up ? "none" : "7 6");
      put(line, "data-up", link.up);
      put(line, "data-apart", known ? link.apart : "");
      put(line, "data-bytes", link.bytes);
    });
    const by = this.colours.value;
    const range = by ? world.range(by) : null;
    world.nodes.forEach((node, n) => {
      const value = by ? node[by] : undefined;
      const share = range && Number.isFinite(value) ? (range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 1) : null;
      const fill = node.edge?.problem ? bad : share === null ? panel : nodeShade(by === "loss" ? 1 - share : share);
      put(this.spots[n].circle, "fill", fill);
      put(this.spots[n].group, "data-value", Number.isFinite(value) ? value : "");
      if (!this.clock.playing) put(this.spots[n].group, "aria-label", this.linesOf(n).join("; "));
      const { text } = this.spots[n];
      if (text && !text.classList.contains("beside")) put(text, "fill", onTop(fill));
    });
    this.tell(world, moment, most, by, range);
  }

  tipLink(n, event) {
    const link = this.world.links[n];
    const lines = [`link ${link.name}: ${link.up ? "up" : "down"}`];
    if (Number.isFinite(link.apart)) lines.push(`its ends are ${three(link.apart)} apart${this.world.live ? " (relative)" : ""}`);
    lines.push(...link.says());
    showTip(lines.map((line) => el("div", {}, line)), event.clientX, event.clientY);
  }

  linesOf(n) {
    const { world } = this;
    const node = world.nodes[n];
    const lines = [`server ${node.name}: ${node.present} of ${node.expected} clients`];
    if (Number.isFinite(node.accuracy)) lines.push(`test accuracy ${percent(node.accuracy)}`);
    if (Number.isFinite(node.loss)) lines.push(`test loss ${three(node.loss)}`);
    return [...lines, ...node.says()];
  }

  tipNode(n, event) {
    const box = event.currentTarget.getBoundingClientRect();
    const lines = this.linesOf(n);
    for (const link of this.world.links.filter(({ a, b }) => a === n || b === n).slice(0, MOST_LINES)) {
      lines.push(`link ${link.name}: ${link.up ? "up" : "down"}${Number.isFinite(link.apart) ? `, ${three(link.apart)} apart` : ""}`);
    }
    showTip(lines.map((line) => el("div", {}, line)), event.clientX ?? box.right, event.clientY ?? box.bottom);
  }

  tell(world, moment, most, by, range) {
    const { graph, links, nodes, live } = world;
    const rows = [["servers", nodes.length], ["clients", nodes.reduce((sum, node) => sum + node.expected, 0)]];
    if (links.length) rows.push(["links", links.length], ["links down", links.filter((link) => !link.up).length]);
    if (Number.isFinite(graph?.zeta) && links.length) rows.push(["zeta", three(graph.zeta)]);
    if (graph?.averager) rows.push(["averager", graph.averager], ["contraction of a round", three(graph.contraction)]);
    if (graph?.link_bytes_per_round) rows.push(["a link carries in a round", bytes(graph.link_bytes_per_round)]);
    if (Number.isFinite(moment?.disagreement)) rows.push(["disagreement", three(moment.disagreement)]);
    if (live) rows.push(["over all links", bytes(links.reduce((sum, link) => sum + link.bytes, 0))]);
    const known = links.some((link) => Number.isFinite(link.apart));
    const words = [graph?.problem, world.run?.stride > 1 ? `A long run: of its rounds one in ${world.run.stride} is replayed.` : null, known ? null : world.why()].filter(Boolean);
    const share = (value) => (by === "accuracy" ? percent(value) : three(value));
    keepIfSame(this.facts, [rows, known && most, words, by, range, document.documentElement.dataset.theme], () => [
      el("table", {}, ...rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, String(value))))),
      ...(range ? [scaleBar((at) => nodeShade(by === "loss" ? 1 - at : at), share(range[0]), share(range[1]), `servers: test ${by}`)] : []),
      ...(known ? [scaleBar(linkShade, "0", most > 1e-12 ? three(most) : "0", `links: distance of the models at their ends${live ? ", relative" : ""}`)] : []),
      live ? el("p", { class: "keys" }, "● client at home", " ◆ guest", " ○ away")
        : el("p", { class: "keys" }, ...["compute", "upload", "exchange", "download"].map((part) => el("span", {}, el("span", { class: `key ${part}` }), part))),
      ...words.map((text) => el("p", { class: "empty" }, text)),
    ]);
  }
}

function traceRow(run, iteration) {
  const at = run.trace.columns.get("iteration");
  if (!at) return -1;
  let [low, high] = [0, at.length];
  while (low < high) { const middle = (low + high) >> 1; if (at.data[middle] < iteration) low = middle + 1; else high = middle; }
  return low < at.length && at.data[low] === iteration ? low : -1;
}

function cloud([x, y], name) {
  return svg("g", { "data-hub": name }, svg("rect", { x: x - 34, y: y - 17, width: 68, height: 34, rx: 17, fill: colour("panel"), stroke: colour("ink"), "stroke-width": 1.5 }),
    svg("text", { x, y: y + 4.5, "text-anchor": "middle", "font-size": 13, fill: colour("ink") }, name));
}

// Only what is new: a hundred servers have thousands of attributes, and few of them change.
function put(node, name, value) {
  const seen = (node.seen ??= {});
  if (seen[name] === value) return;
  seen[name] = value;
  node.setAttribute(name, value);
}
