// Servers as nodes with their clients around them, links coloured by how far apart their ends are.

import { ask, bytes, colour, el, hideTip, keepIfSame, short, showTip, svg } from "./util.js";

const SIZE = 560;
const MOST_DOTS = 12; // clients that are drawn one by one; more are a number
// Viridis, which reads alike for all eyes and in grey; without the end that the paper would swallow.
const ON_LIGHT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [70, 175, 100], [170, 195, 30]];
const ON_DARK = [[105, 90, 205], [75, 130, 200], [45, 170, 165], [110, 210, 105], [253, 231, 37]];

function shade(share) {
  const SCALE = document.documentElement.dataset.theme === "dark" ? ON_DARK : ON_LIGHT;
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const n = Math.min(SCALE.length - 2, Math.floor(at));
  const mixed = SCALE[n].map((low, i) => Math.round(low + (SCALE[n + 1][i] - low) * (at - n)));
  return `rgb(${mixed.join(" ")})`;
}

export class NetworkView {
  constructor(section, store) {
    this.store = store;
    this.known = new Map();
    this.follows = true;
    this.which = el("select", { "data-testid": "network-of", onchange: () => { this.chosen = this.which.value; this.follows = true; this.draw(); } });
    this.slider = el("input", {
      type: "range", min: 0, max: 0, value: 0, class: "grow", "data-testid": "replay", "aria-label": "Replay: evaluation",
      oninput: () => { this.follows = Number(this.slider.value) === Number(this.slider.max); this.paint(); },
    });
    this.play = el("button", { type: "button", "data-testid": "play", onclick: () => this.run() }, "play");
    this.when = el("output", { "data-testid": "replay-at" });
    this.replay = el("div", { class: "bar" }, this.play, this.slider, this.when);
    this.picture = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": "Network of edge servers" });
    this.facts = el("div", { "data-testid": "network-facts" });
    this.words = el("p", { class: "empty" });
    this.both = el("div", { class: "two" }, this.picture, this.facts);
    section.append(el("div", { class: "bar" }, el("label", {}, "of", this.which)), this.words, this.replay, this.both);
    this.picture.addEventListener("pointerleave", hideTip);
    // Text keeps its size where the picture is made smaller. Asked here, not at every paint.
    this.zoom = 1;
    new ResizeObserver(() => {
      this.zoom = Math.min(1.8, Math.max(1, SIZE / (this.picture.clientWidth || SIZE)));
      this.paint();
    }).observe(this.picture);
  }

  // What can be shown: the deployment, and every run but those of its edges.
  offer() {
    const names = [...this.store.runs.values()].filter((run) => !run.about.real).map((run) => run.name);
    const edges = this.store.deployment?.edges?.length ? ["the deployment"] : [];
    keepIfSame(this.which, [edges, names], () => {
      const before = this.chosen;
      const options = [...edges.map((label) => ["/deployment", label]), ...names.map((name) => [name, name])];
      return options.map(([value, label]) => el("option", { value, selected: value === before }, label));
    });
  }

  async draw() {
    this.offer();
    const name = this.which.value;
    const live = name === "/deployment";
    this.both.hidden = !name;
    this.replay.hidden = live || !name;
    if (!name) { this.words.textContent = "No run yet, so no network."; return; }
    this.words.textContent = "";
    if (live) { this.show(this.fromDeployment()); return; }
    const run = this.store.runs.get(name);
    const mark = JSON.stringify([run.about.rows > 0, run.about.trace_edition]);
    if (this.known.get(name)?.mark !== mark) {
      this.known.set(name, { mark, ...(this.known.get(name)?.graph ? { graph: this.known.get(name).graph } : {}) });
      try {
        this.known.set(name, { mark, graph: await ask("network", { run: name }) });
      } catch (problem) {
        this.known.set(name, { mark, problem: problem.message });
      }
    }
    if (this.which.value !== name) return;
    const { graph, problem } = this.known.get(name);
    this.both.hidden = !graph;
    if (!graph) { this.words.textContent = problem ?? "asking…"; this.replay.hidden = true; return; }
    this.show(this.fromRun(run, graph));
  }

  fromRun(run, graph) {
    const links = graph.links.map(([a, b]) => ({ a, b, name: `${a}-${b}`, up: true, bytes: graph.link_bytes_per_round ?? 0 }));
    const nodes = graph.clients.map((clients, n) => ({ name: String(n), clients, share: graph.shares[n], present: clients }));
    return { run, graph, nodes, links, key: run.name };
  }

  fromDeployment() {
    const { edges, links, homes } = this.store.deployment;
    const at = new Map(edges.map((edge, n) => [edge.name, n]));
    const nodes = edges.map((edge) => ({
      name: edge.name, clients: homes[edge.name].length, present: edge.clients.length, edge, share: 1 / edges.length,
    }));
    const drawn = links.map(([a, b]) => {
      const [from, to] = [edges[at.get(a)], edges[at.get(b)]];
      const states = [from.links[b], to.links[a]].filter(Boolean);
      const up = states.length > 0 && states.every((state) => state.startsWith("up")) && !from.problem && !to.problem;
      const used = Math.max(0, ...states.map((state) => Number(/ (\d+)\+/.exec(state)?.[1] ?? 0)));
      // Either end counts what it has seen since it was started: who was there for longer knows more.
      const seen = [from.link_bytes?.[b], to.link_bytes?.[a]].filter(Boolean).map(({ sent, received }) => sent + received);
      return { a: at.get(a), b: at.get(b), name: `${a}-${b}`, up, bytes: Math.max(0, ...seen), used, states, apart: Math.max(from.link_disagreement?.[b] ?? 0, to.link_disagreement?.[a] ?? 0) };
    });
    return { nodes, links: drawn, key: "/deployment", live: true };
  }

  show(world) {
    world.mark = JSON.stringify([world.key, world.nodes.map((n) => [n.name, n.clients]), world.links.map((l) => l.name)]);
    this.world = world;
    const rows = world.run ? world.run.metrics.rows : 0;
    this.slider.max = Math.max(0, rows - 1);
    if (this.follows) this.slider.value = this.slider.max;
    this.paint();
  }

  run() {
    if (this.timer) { this.halt(); return; }
    if (Number(this.slider.value) >= Number(this.slider.max)) this.slider.value = 0;
    this.follows = false;
    this.play.textContent = "pause";
    const step = Math.max(1, Math.ceil(Number(this.slider.max) / 200));
    this.timer = setInterval(() => {
      this.slider.value = Number(this.slider.value) + step;
      if (Number(this.slider.value) >= Number(this.slider.max)) { this.follows = true; this.halt(); }
      this.paint();
    }, 60);
  }

  halt() { clearInterval(this.timer); this.timer = null; this.play.textContent = "play"; }

  // The moment that the slider shows.
  moment() {
    const { run, live } = this.world;
    if (live || !run.metrics.rows) return null;
    const n = Number(this.slider.value);
    const value = (name) => run.metrics.columns.get(name)?.data[n];
    const iteration = value("iteration");
    const traced = this.traced(run, iteration);
    return { n, iteration, seconds: value("seconds"), disagreement: value("disagreement"), traced };
  }

  traced(run, iteration) {
    const at = run.trace.columns.get("iteration");
    if (!at) return -1;
    let [low, high] = [0, at.length];
    while (low < high) { const middle = (low + high) >> 1; if (at.data[middle] < iteration) low = middle + 1; else high = middle; }
    return low < at.length && at.data[low] === iteration ? low : -1;
  }

  paint() {
    if (!this.world) return;
    const { world } = this;
    const moment = this.moment();
    for (const link of world.links) {
      if (!world.live) link.apart = moment?.traced >= 0 ? world.run.trace.columns.get(link.name)?.data[moment.traced] : undefined;
    }
    const measured = world.links.map((link) => link.apart).filter((value) => Number.isFinite(value));
    this.most = this.highest(world, measured);
    const mark = `${world.mark} ${document.documentElement.dataset.theme} ${this.zoom.toFixed(1)}`;
    if (this.mark !== mark) { this.mark = mark; this.build(); }
    this.colourLinks(world, moment);
    this.when.textContent = moment ? `iteration ${moment.iteration}, ${short(moment.seconds)} s` : "";
    this.tell(world, moment);
  }

  // One scale for the whole replay, so that a colour means the same at any moment.
  highest(world, measured) {
    if (world.live) return Math.max(1e-12, ...measured);
    const { trace } = world.run;
    if (this.scaled?.changes !== trace.changes || this.scaled.key !== world.key) {
      let most = 0;
      for (const link of world.links) {
        const column = trace.columns.get(link.name);
        for (let n = 0; column && n < column.length; n += 1) if (column.data[n] > most) most = column.data[n];
      }
      this.scaled = { changes: trace.changes, key: world.key, most };
    }
    return this.scaled.most || 1e-12;
  }

  place(n, count) {
    const angle = (2 * Math.PI * n) / count - Math.PI / 2;
    const radius = count === 1 ? 0 : SIZE * 0.38;
    return [SIZE / 2 + radius * Math.cos(angle), SIZE / 2 + radius * Math.sin(angle), angle];
  }

  build() {
    const { nodes, links } = this.world;
    const count = nodes.length;
    this.lines = links.map((link, n) => {
      const [x1, y1] = this.place(link.a, count);
      const [x2, y2] = this.place(link.b, count);
      return svg("line", {
        x1, y1, x2, y2, "data-link": link.name, onpointermove: (event) => this.tipLink(n, event), onpointerleave: hideTip,
      });
    });
    this.spots = nodes.map((node, n) => this.node(node, n, count));
    this.picture.replaceChildren(...this.lines, ...this.spots.map((spot) => spot.group));
  }

  node(node, n, count) {
    const [x, y, angle] = this.place(n, count);
    const radius = Math.max(5, Math.min(22, 170 / count));
    const circle = svg("circle", { cx: x, cy: y, r: radius, stroke: colour("ink"), "stroke-width": 1.5 });
    const group = svg("g", { "data-server": node.name, tabindex: n ? -1 : 0, onkeydown: (event) => this.key(n, event), onpointermove: (event) => this.tipNode(n, event), onpointerleave: hideTip, onfocus: (event) => this.tipNode(n, event), onblur: hideTip }, circle);
    const dots = [];
    if (node.clients <= MOST_DOTS && count <= 40) {
      for (let c = 0; c < node.clients; c += 1) {
        const turn = angle + ((c - (node.clients - 1) / 2) * Math.PI) / Math.max(8, node.clients);
        const [cx, cy] = [x + radius * 2 * Math.cos(turn), y + radius * 2 * Math.sin(turn)];
        dots.push(svg("circle", { cx, cy, r: Math.max(2, radius / 5), stroke: colour("c0"), "stroke-width": 1.2 }));
      }
    } else {
      const far = radius + 14;
      group.append(svg("text", {
        x: x + far * Math.cos(angle), y: y + far * Math.sin(angle) + 4, "text-anchor": "middle", fill: colour("soft"), "font-size": (count > 40 ? 8 : 12) * this.zoom,
        ...(count > 40 ? outwards(x + far * Math.cos(angle), y + far * Math.sin(angle), angle) : {}),
      }, String(node.clients)));
    }
    group.append(...dots);
    if (count <= 40) {
      group.append(svg("text", { x, y: y + 4.5, "text-anchor": "middle", fill: colour("ink"), "font-size": Math.min(13, 160 / count + 5) * this.zoom },
        node.name.length > 6 && !this.world.live ? node.name.slice(0, 6) : node.name.slice(0, 8)));
    }
    return { group, circle, dots };
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

  colourLinks(world, moment) {
    const widest = Math.max(...world.links.map((link) => link.bytes), 1e-12);
    const [soft, bad, panel, full, empty] = ["soft", "bad", "panel", "c0", "paper"].map(colour);
    // Many links leave each less room.
    const [least, wide] = [Math.min(1.2, 300 / world.links.length), Math.min(4.8, 300 / world.links.length)];
    const rounds = moment && world.graph.tau ? Math.floor(moment.iteration / world.graph.tau) : 0;
    world.links.forEach((link, n) => {
      const line = this.lines[n];
      const known = Number.isFinite(link.apart);
      put(line, "stroke", link.up ? (known ? shade(link.apart / this.most) : soft) : bad);
      put(line, "stroke-width", (least + wide * (link.bytes / widest)).toFixed(2));
      put(line, "stroke-dasharray", link.up ? "none" : "7 6");
      put(line, "data-up", link.up);
      put(line, "data-apart", known ? link.apart : "");
      put(line, "data-bytes", link.bytes);
      link.sofar = rounds * link.bytes;
    });
    world.nodes.forEach((node, n) => {
      const spot = this.spots[n];
      put(spot.circle, "fill", node.edge?.problem ? bad : panel);
      spot.dots.forEach((dot, c) => put(dot, "fill", c < node.present ? full : empty));
    });
  }

  tipLink(n, event) {
    const link = this.world.links[n];
    const { live } = this.world;
    const lines = [`link ${link.name}: ${link.up ? "up" : "down"}`];
    if (Number.isFinite(link.apart)) lines.push(`its ends are ${short(link.apart)} apart${live ? " (relative)" : ""}`);
    if (live) lines.push(`exchanges used + skipped: ${link.states.join(" / ")}`, `${bytes(link.bytes)} so far, both ways`);
    else lines.push(`${bytes(link.bytes)} a round, ${bytes(link.sofar)} so far`);
    showTip(lines.map((line) => el("div", {}, line)), event.clientX, event.clientY);
  }

  tipNode(n, event) {
    const node = this.world.nodes[n];
    const box = event.currentTarget.getBoundingClientRect();
    const lines = [`server ${node.name}: ${node.present} of ${node.clients} clients`];
    if (!this.world.live) lines.push(`${short(node.share * 100, 4)} % of all data`);
    else if (node.edge.problem) lines.push(node.edge.problem);
    else lines.push(`period ${node.edge.period} of ${node.edge.periods}, ${node.edge.phase}`, node.edge.clients.join(", "));
    const own = this.world.links.filter((link) => link.a === n || link.b === n);
    for (const link of own.slice(0, MOST_DOTS)) {
      const apart = Number.isFinite(link.apart) ? `, ${short(link.apart)} apart` : "";
      lines.push(`link ${link.name}: ${link.up ? "up" : "down"}${apart}`);
    }
    showTip(lines.map((line) => el("div", {}, line)), event.clientX ?? box.right, event.clientY ?? box.bottom);
  }

  tell(world, moment) {
    const { graph } = world;
    const rows = [["servers", world.nodes.length], ["clients", world.nodes.reduce((sum, node) => sum + node.clients, 0)], ["links", world.links.length],
      ["links down", world.links.filter((link) => !link.up).length]];
    if (graph) {
      rows.push(["zeta", short(graph.zeta)]);
      if (graph.averager) rows.push(["averager", graph.averager], ["contraction", short(graph.contraction)]);
      if (graph.link_bytes_per_round) rows.push(["a link, a round", bytes(graph.link_bytes_per_round)]);
      if (Number.isFinite(moment?.disagreement)) rows.push(["disagreement", short(moment.disagreement)]);
    }
    if (world.live) rows.push(["over all links", bytes(world.links.reduce((sum, link) => sum + link.bytes, 0))]);
    const known = world.links.some((link) => Number.isFinite(link.apart));
    keepIfSame(this.facts, [rows, known && this.most, graph?.problem, document.documentElement.dataset.theme], () => [
      el("table", {}, ...rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, String(value))))),
      ...(known ? [scaleBar(this.most, world.live)] : [el("p", { class: "empty" }, world.live ? "" : "How far apart the ends of a link are is noted from this version on, for up to 500 links.")]),
      ...(graph?.problem ? [el("p", { class: "empty" }, graph.problem)] : []),
    ]);
  }
}

// Only what is new: a hundred servers have thousands of attributes, and few of them change.
function put(node, name, value) {
  const seen = (node.seen ??= {});
  if (seen[name] === value) return;
  seen[name] = value;
  node.setAttribute(name, value);
}

// Read along the way from the middle, and never upside down: so a hundred numbers have room.
function outwards(x, y, angle) {
  const turned = Math.cos(angle) < 0 ? angle + Math.PI : angle;
  return { transform: `rotate(${((turned * 180) / Math.PI).toFixed(1)} ${x} ${y})`, y: y + 3, x };
}

function scaleBar(most, live) {
  const steps = Array.from({ length: 40 }, (_, n) => svg("rect", { x: n * 6, y: 0, width: 6.5, height: 12, fill: shade(n / 39) }));
  const text = { y: 27, fill: colour("ink"), "font-size": 12 };
  return svg("svg", { viewBox: "0 0 244 48", class: "scale" }, ...steps,
    svg("text", { x: 0, ...text }, "0"), svg("text", { x: 240, "text-anchor": "end", ...text }, most > 1e-12 ? short(most, 4) : "0"),
    svg("text", { x: 0, ...text, y: 43 }, live ? "||w_a - w_b|| / ||w_a|| of a link's ends" : "||w_a - w_b|| of a link's ends"));
}
