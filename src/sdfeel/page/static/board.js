// The board of the editor: servers, links and clients that a mouse can take.

import { isSame, placeAll, seatsOf } from "./geometry.js";
import { colour, el, svg, zoom } from "./util.js";

const [RADIUS, FEW] = [17, 24];
const REACH = 34; // pixels from a server's middle within which it is meant

export class Board {
  constructor(edit) {
    this.edit = edit;
    this.picture = svg("svg", { role: "group", "aria-label": "Servers to link", "data-testid": "board" });
    this.node = el("div", { class: "board" }, this.picture);
    new ResizeObserver(() => this.draw()).observe(this.node);
    this.at = 0; // the server that keys are at
    this.picture.addEventListener("pointermove", (event) => this.drag(event));
    this.picture.addEventListener("pointerup", (event) => this.drop(event));
    this.picture.addEventListener("pointerleave", () => this.release());
  }

  arrange() { this.plan = null; }

  show(network, name) {
    Object.assign(this, { network, name });
    this.draw();
  }

  draw() {
    if (!this.network) return;
    this.fit();
    const { members, links } = this.network;
    const mark = JSON.stringify([this.width, this.network, this.first, document.documentElement.dataset.theme, this.plan !== null]);
    if (this.mark === mark) return;
    this.mark = mark;
    this.place(members, links);
    const lines = links.map(([a, b]) => this.line(a, b));
    this.spots = members.map((_, n) => this.server(n));
    this.thread = svg("line", { stroke: colour("accent"), "stroke-width": 3, visibility: "hidden", "pointer-events": "none" });
    const had = this.picture.contains(document.activeElement);
    this.picture.replaceChildren(...lines, this.thread, ...this.spots, ...members.flatMap((clients, n) => this.clients(clients, n)));
    if (had) this.spots[Math.min(this.at, this.spots.length - 1)].focus();
  }

  // A pixel of the picture is one of the screen.
  fit() {
    const width = Math.max(300, Math.round((this.node.clientWidth || 640) / zoom()));
    if (width === this.width) return;
    [this.width, this.height, this.plan] = [width, Math.round(Math.min(480, Math.max(300, 0.72 * width))), null];
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
  }

  // Servers stay where they are; a new one comes to the freest place near its neighbour.
  place(members, links) {
    if (!this.plan) {
      const world = { nodes: members.map(() => ({ clients: 5 })), links: links.map(([a, b]) => ({ a, b })) };
      this.plan = placeAll(world, this.width, this.height);
      this.mark = "";
    }
    const { points } = this.plan;
    points.length = Math.min(points.length, members.length);
    for (let n = points.length; n < members.length; n += 1) {
      const beside = links.find(([a, b]) => a === n || b === n);
      const [x, y] = points[beside ? (beside[0] === n ? beside[1] : beside[0]) : 0] ?? [this.width / 2, this.height / 2];
      const places = Array.from({ length: 48 }, (_, i) => [x + (80 + 40 * (i % 3)) * Math.cos((i * Math.PI) / 8), y + (80 + 40 * (i % 3)) * Math.sin((i * Math.PI) / 8)])
        .filter(([px, py]) => px > 50 && px < this.width - 50 && py > 50 && py < this.height - 50);
      const free = ([px, py]) => Math.min(...points.map(([qx, qy]) => Math.hypot(px - qx, py - qy)));
      points.push(places.reduce((best, place) => (free(place) > free(best) ? place : best), places[0]));
    }
    this.radius = Math.max(6, Math.min(RADIUS, 0.3 * this.plan.room));
  }

  line(a, b) {
    const { points } = this.plan;
    const [x1, y1] = points[a];
    const [x2, y2] = points[b];
    const about = { x1, y1, x2, y2, "data-edit-link": `${a}-${b}` };
    const wide = svg("line", { ...about, stroke: "transparent", "stroke-width": 16, onclick: () => this.edit(`-${a}-${b}`) });
    wide.append(svg("title", {}, `cut the link ${this.name(a)} – ${this.name(b)}`));
    return svg("g", { class: "link" }, svg("line", { x1, y1, x2, y2, stroke: colour("soft"), "stroke-width": 3 }), wide);
  }

  server(n) {
    const [x, y] = this.plan.points[n];
    const name = this.name(n).slice(0, 8);
    const inside = 4 * name.length < this.radius + 4;
    const isFirst = this.first === n;
    return svg("g", {
      "data-edit-server": n, tabindex: n === this.at ? 0 : -1, role: "button", "aria-pressed": String(isFirst), class: "server",
      "aria-label": `server ${this.name(n)}, ${this.network.members[n].length} clients, linked to ${this.network.links.filter(([a, b]) => a === n || b === n).map(([a, b]) => this.name(a === n ? b : a)).join(", ") || "none"}`,
      onpointerdown: (event) => this.take({ server: n }, event), onkeydown: (event) => this.key(n, event),
    }, svg("circle", { cx: x, cy: y, r: this.radius, fill: colour("panel"), stroke: colour(isFirst ? "accent" : "ink"), "stroke-width": isFirst ? 4 : 1.5 }),
    svg("text", { x, y: inside ? y + 4.5 : y - this.radius - 4, "text-anchor": "middle", "font-size": 12, fill: colour("ink") }, name));
  }

  clients(members, n) {
    const shown = members.slice(0, FEW);
    const { points, outwards, centre, room } = this.plan;
    const { places, size } = seatsOf(points[n], this.radius, shown.length, outwards && !isSame(points[n], centre) ? centre : null, Math.max(76, room));
    const dots = shown.map((client, c) => svg("circle", {
      cx: places[2 * c], cy: places[2 * c + 1], r: Math.max(4, size), fill: colour("c0"), class: "client", "data-edit-client": client,
      onpointerdown: (event) => this.take({ client, dot: event.currentTarget }, event),
    }));
    const left = members.length - shown.length;
    const [x, y] = this.plan.points[n];
    return left > 0 ? [...dots, svg("text", { x, y: y + this.radius + 40, "text-anchor": "middle", "font-size": 11, fill: colour("soft") }, `and ${left} more`)] : dots;
  }

  here(event) {
    const box = this.picture.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * this.width, ((event.clientY - box.top) / box.height) * this.height];
  }

  near([x, y]) {
    let [best, least] = [null, REACH];
    this.plan.points.forEach(([px, py], n) => { const far = Math.hypot(px - x, py - y); if (far < least) [best, least] = [n, far]; });
    return best;
  }

  take(held, event) {
    if (event.button !== 0) return;
    this.held = held;
    event.preventDefault();
    if (held.server !== undefined) { this.at = held.server; this.spots[held.server].focus(); }
  }

  drag(event) {
    if (!this.held) return;
    const [x, y] = this.here(event);
    if (this.held.dot) { this.held.dot.setAttribute("cx", x); this.held.dot.setAttribute("cy", y); return; }
    const [x1, y1] = this.plan.points[this.held.server];
    for (const [name, value] of Object.entries({ x1, y1, x2: x, y2: y, visibility: "visible" })) this.thread.setAttribute(name, value);
  }

  drop(event) {
    const { held } = this;
    if (!held) return;
    const target = this.near(this.here(event));
    this.release();
    if (target === null) return;
    if (held.dot) { if (!this.network.members[target].includes(held.client)) this.edit(`m${held.client}-${target}`); return; }
    if (target !== held.server) this.toggle(held.server, target);
  }

  release() {
    const { held } = this;
    this.held = null;
    this.thread?.setAttribute("visibility", "hidden");
    if (held?.dot) { this.mark = ""; this.draw(); }
  }

  toggle(a, b) {
    const [low, high] = [Math.min(a, b), Math.max(a, b)];
    const has = this.network.links.some(([p, q]) => p === low && q === high);
    this.edit(`${has ? "-" : "+"}${low}-${high}`);
  }

  key(n, event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      this.at = (n + step + this.spots.length) % this.spots.length;
      this.spots.forEach((spot, m) => spot.setAttribute("tabindex", m === this.at ? 0 : -1));
      this.spots[this.at].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      const { first } = this;
      this.first = first === undefined ? n : undefined;
      if (first !== undefined && first !== n) this.toggle(first, n);
      else this.draw();
    } else if (event.key === "s") this.edit(`s${n}`);
    else if (event.key === "Escape") { this.first = undefined; this.draw(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
