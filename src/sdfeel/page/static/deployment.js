// Every edge of a deployment as it answers; what has happened, as stories that can be replayed; curves and members.

import { Chart } from "./plot.js";
import { bytes, clockTime, colour, el, hideTip, keepIfSame, look, short, showTip, svg } from "./util.js";

const COLUMNS = ["edge", "period", "phase", "clients", "links", "late", "refused", "s/period", "apart", "loss", "accuracy", "memory", "certificate"];
const MEASURES = [
  { name: "deployment-loss", axis: "loss", kinds: ["test_loss", "clients_train_loss", "clients_batch_loss"] },
  { name: "deployment-accuracy", axis: "accuracy", kinds: ["test_accuracy", "clients_train_accuracy"] },
];
const MARGIN = 2; // seconds before and after a story in its strip
const REPLAY = 6; // seconds that a replay takes
const LANE = 22;
const LEFT = 110;

export class DeploymentView {
  constructor(section, store) {
    this.store = store;
    this.words = el("p", { class: "empty" }, "No deployment is watched: sdfeel watch --deployment deployment.toml shows its edges here.");
    this.edges = el("div", { class: "scroll", "data-testid": "edges", tabindex: 0, role: "region", "aria-label": "Edges" });
    this.warnings = el("div", { "data-testid": "warnings" });
    this.strips = new Map();
    this.incidents = el("ul", { class: "events", "data-testid": "incidents", "aria-live": "polite" });
    this.charts = MEASURES.map(({ name }) => new Chart(name, []));
    this.curves = el("div", { class: "charts" }, ...this.charts.map((chart) => chart.node));
    this.note = el("p", { class: "empty" });
    this.legend = el("p", { class: "bar" });
    this.refused = el("div", { class: "scroll", "data-testid": "not-taken", tabindex: 0, role: "region", "aria-label": "Not taken as it came" });
    this.members = el("div", { class: "scroll", "data-testid": "members", tabindex: 0, role: "region", "aria-label": "Members" });
    section.append(this.words, this.edges, this.warnings, el("h3", {}, "Incidents"), this.incidents,
      this.against = el("h3", {}, "Not taken as it came"), this.refused, this.title = el("h3", {}, "Loss and accuracy"), this.note, this.legend, this.curves,
      this.people = el("h3", {}, "Members"), this.members);
    this.draw();
  }

  draw() {
    const { deployment } = this.store;
    for (const node of [this.edges, this.warnings, this.refused, this.against, this.curves, this.legend, this.title, this.note, this.people, this.members]) node.hidden = !deployment;
    if (!deployment) {
      keepIfSame(this.incidents, ["none"], () => [el("li", {}, "Nothing happens where nothing is deployed.")]);
      return;
    }
    const { edges, problem, name, incidents = [] } = deployment;
    this.words.textContent = problem || name;
    this.words.className = problem ? "note bad" : "empty";
    keepIfSame(this.edges, edges, () => [table(edges)]);
    const warnings = edges.flatMap((edge) => edge.warnings.map(({ text }) => `${edge.name}: ${text}`));
    keepIfSame(this.warnings, warnings, () => warnings.map((text) => el("p", { class: "note" }, text)));
    this.drawIncidents(incidents);
    this.drawCurves(deployment.curves ?? {});
    const { not_taken: refused = [] } = deployment;
    keepIfSame(this.refused, refused, () => [refused.length ? notTaken(refused) : el("p", { class: "empty" }, "Every model counted as it came.")]);
    keepIfSame(this.members, edges.map((edge) => edge.members), () => [members(edges)]);
  }

  // What was open stays open, though its words change.
  drawIncidents(incidents) {
    const known = new Map();
    keepIfSame(this.incidents, [incidents, document.documentElement.dataset.theme], () => {
      if (!incidents.length) return [el("li", {}, "Nothing has gone wrong as far as the edges know.")];
      return [...incidents].reverse().map((story) => {
        const key = `${story.kind} ${story.about.join(" ")} ${Math.round(story.first / 5)}`;
        const strip = this.strips.get(key) ?? new Strip();
        known.set(key, strip);
        strip.tell(story);
        return item(story, strip);
      });
    });
    if (known.size) this.strips = known;
  }

  drawCurves(curves) {
    const edges = this.store.deployment.edges.map((edge) => edge.name).filter((name) => curves[name]);
    const mark = JSON.stringify([curves, document.documentElement.dataset.theme]);
    if (mark === this.mark) return;
    this.mark = mark;
    const isClaimed = edges.some((edge) => Object.keys(curves[edge]).some((kind) => kind.startsWith("clients_")));
    this.note.textContent = !edges.length ? "Nothing has been measured yet."
      : isClaimed ? "Solid: measured by the edge on its holdout. Dashed: what its clients say of themselves, which nobody checks." : "";
    this.charts.forEach((chart, n) => {
      const { kinds, axis } = MEASURES[n];
      chart.titles = { x: "iteration", y: axis };
      chart.curves = edges.flatMap((edge, at) => kinds.filter((kind) => curves[edge][kind]).map((kind) => {
        const points = curves[edge][kind];
        const column = (place) => ({ data: points.map((point) => point[place]), length: points.length });
        const says = kind.startsWith("clients_");
        return {
          name: `${edge} ${kind}`, label: says ? `clients of ${edge} (${kind.slice(8).replaceAll("_", " ")})` : edge,
          x: column(0), y: column(1), look: { colour: look(at).colour, dash: says ? "4 3" : "" },
        };
      }));
      chart.draw();
    });
    this.legend.replaceChildren(...edges.map((edge, at) => el("span", {},
      svg("svg", { width: 26, height: 10, "aria-hidden": true }, svg("line", { x1: 2, x2: 22, y1: 5, y2: 5, stroke: colour(look(at).colour), "stroke-width": 3 })), edge)));
    this.curves.hidden = this.legend.hidden = !edges.length;
  }
}

function table(edges) {
  const head = el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)));
  return el("table", {}, head, ...edges.map((edge) => {
    if (edge.problem) {
      return el("tr", { "data-edge": edge.name }, el("td", {}, edge.name),
        el("td", { class: "words bad", colspan: COLUMNS.length - 1 }, `no answer: ${edge.problem}`));
    }
    const links = Object.entries(edge.links);
    const down = links.filter(([, link]) => !link.up).map(([peer]) => peer);
    const cells = {
      edge: edge.name, period: `${edge.period}/${edge.periods}`, phase: edge.phase,
      clients: `${edge.clients.length}/${edge.expected}`,
      links: `${links.length - down.length}/${links.length}${down.length ? ` (down: ${down.join(", ")})` : ""}`,
      late: edge.late, refused: edge.refused, "s/period": short(edge.seconds_per_period, 3), apart: short(edge.disagreement, 3),
      loss: short(edge.loss, 3), accuracy: edge.accuracy === null ? "–" : `${short(100 * edge.accuracy, 3)} %`,
      memory: edge.memory ? bytes(Number(edge.memory.toPrecision(3))) : "–",
      certificate: left(edge.certificate_hours),
    };
    return el("tr", { "data-edge": edge.name }, ...COLUMNS.map((name) =>
      el("td", { "data-cell": name, class: name === "links" && down.length ? "bad" : null }, String(cells[name]))));
  }));
}

function left(hours) {
  if (hours === null) return "–";
  if (hours <= 0) return "ended";
  return hours < 48 ? `${short(hours, 3)} h left` : `${short(hours / 24, 3)} days left`;
}

// Models that were refused, late or scaled down, by client, with the last reason.
function notTaken(rows) {
  const head = ["client", "edge", "what", "times", "last", "why"];
  return el("table", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col", class: name === "why" ? "words" : null }, name))),
    ...rows.map((row) => el("tr", {}, el("td", {}, row.client), el("td", {}, row.edge), el("td", {}, row.what), el("td", {}, String(row.times)),
      el("td", {}, clockTime(row.last)), el("td", { class: "words" }, row.why))));
}

// Clients by name; what they say of themselves stands with them and nowhere else.
function members(edges) {
  const rows = edges.flatMap((edge) => edge.members.map((member) => [edge.name, member]));
  const kinds = [...new Set(rows.flatMap(([, member]) => Object.keys(member.measures)))].sort();
  const head = ["client", "is at", "certificate", ...kinds.map((kind) => `says: ${kind.replaceAll("_", " ")}`)];
  return el("table", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name))),
    ...rows.map(([edge, member]) => el("tr", { "data-member": member.name },
      el("td", {}, member.name), el("td", {}, member.guest ? `${edge}, as a guest` : edge), el("td", {}, left(member.certificate_hours)),
      ...kinds.map((kind) => el("td", {}, short(member.measures[kind], 3))))));
}

function sentence(story) {
  const parts = story.parts.map(({ words, at }) => (at === null ? words : `${words} at ${clockTime(at)}`));
  const end = story.last === null ? ["and lasts"] : [];
  return [`${story.what} at ${clockTime(story.first)}`, ...parts, ...end].join(", ");
}

function item(story, strip) {
  return el("li", { class: story.last === null ? "open" : "", "data-incident": story.kind, "data-first": story.first, "data-last": story.last ?? "" }, strip.node);
}

// The span of a story with a lane for each edge that tells of it; a cursor goes through it.
class Strip {
  constructor() {
    this.at = null;
    this.picture = svg("svg", { role: "img", "data-testid": "strip" });
    this.play = el("button", { type: "button", "data-testid": "incident-replay", onclick: () => this.run() }, "replay");
    this.when = el("output", {});
    this.list = el("div", { class: "cause" });
    this.words = el("summary", {});
    this.node = el("details", {}, this.words, el("div", { class: "bar" }, this.play, this.when), this.picture, this.list);
    this.node.addEventListener("toggle", () => this.draw());
  }

  tell(story) {
    this.story = story;
    this.words.textContent = sentence(story);
    this.picture.setAttribute("aria-label", `What edges told from ${clockTime(story.first)} on`);
    this.draw();
  }

  get span() {
    const { first, last, details } = this.story;
    const end = Math.max(last ?? 0, ...details.map(({ at }) => at));
    return [Math.min(first, ...details.map(({ at }) => at)) - MARGIN, end + MARGIN];
  }

  run() {
    cancelAnimationFrame(this.frame);
    const [from, to] = this.span;
    const began = performance.now();
    const step = (now) => {
      this.at = Math.min(to, from + ((now - began) / 1000 / REPLAY) * (to - from));
      this.draw();
      if (this.at < to) this.frame = requestAnimationFrame(step);
      else { this.at = null; this.draw(); }
    };
    this.frame = requestAnimationFrame(step);
  }

  draw() {
    if (!this.node.open || !this.story) return;
    const { details, first, last } = this.story;
    const lanes = [...new Set(details.map(({ edge }) => edge))].sort();
    const [from, to] = this.span;
    const width = Math.max(300, Math.min(1000, Math.round(this.picture.parentNode.clientWidth || 620)));
    const height = lanes.length * LANE + 30;
    const sx = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - 12);
    const text = { "font-size": 12, "font-family": "system-ui, sans-serif" };
    const [soft, line, ink, bad, good, accent] = ["soft", "line", "ink", "bad", "good", "accent"].map(colour);
    const bottom = lanes.length * LANE + 4;
    const parts = [svg("rect", { x: sx(first), y: 0, width: Math.max(1, sx(last ?? to) - sx(first)), height: bottom, fill: bad, opacity: 0.12 })];
    lanes.forEach((edge, n) => {
      const y = n * LANE + LANE / 2 + 2;
      parts.push(svg("line", { x1: LEFT, x2: width - 12, y1: y, y2: y, stroke: line }),
        svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end", fill: ink, ...text }, edge.slice(0, 14)));
    });
    for (const time of [from + MARGIN, to - MARGIN]) {
      parts.push(svg("text", { x: sx(time), y: height - 6, "text-anchor": time === from + MARGIN ? "start" : "end", fill: soft, ...text }, clockTime(time)));
    }
    const now = this.at ?? to;
    for (const { at, edge, words, is_good } of details) {
      const y = lanes.indexOf(edge) * LANE + LANE / 2 + 2;
      const fill = is_good === null ? soft : is_good ? good : bad;
      const says = [el("div", {}, `${clockTime(at)} ${edge}: ${words}`)];
      parts.push(svg("circle", {
        cx: sx(at), cy: y, r: at <= now && this.at !== null && now - at < (to - from) / 20 ? 8 : 5, fill, opacity: at <= now ? 1 : 0.2,
        onpointermove: (event) => showTip(says, event.clientX, event.clientY), onpointerleave: hideTip,
      }));
    }
    if (this.at !== null) parts.push(svg("line", { x1: sx(now), x2: sx(now), y1: 0, y2: bottom, stroke: accent, "stroke-width": 2, "data-cursor": now }));
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...parts);
    this.when.textContent = this.at === null ? "" : clockTime(now);
    const seen = details.filter(({ at }) => at <= now);
    keepIfSame(this.list, seen, () => seen.map(({ at, edge, words }) => el("div", {}, `${clockTime(at)} ${edge}: ${words}`)));
  }
}
