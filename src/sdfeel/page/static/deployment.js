// Every edge of a deployment as it answers, and what has happened to them, with the cause.

import { clockTime, el, keepIfSame, short } from "./util.js";

const COLUMNS = ["edge", "period", "phase", "clients", "links", "late", "refused", "s/period", "apart", "loss", "accuracy", "memory", "certificate"];

export class DeploymentView {
  constructor(section, store) {
    this.store = store;
    this.words = el("p", { class: "empty" }, "No deployment is watched: sdfeel watch --deployment deployment.toml shows its edges here.");
    this.edges = el("div", { class: "scroll", "data-testid": "edges" });
    this.title = el("h3", {}, "Events");
    this.events = el("ul", { class: "events", "data-testid": "events", "aria-live": "polite" });
    section.append(this.words, this.edges, this.title, this.events);
    this.draw();
  }

  draw() {
    const found = this.store.deployment;
    this.edges.hidden = !found;
    if (!found) {
      keepIfSame(this.events, ["none"], () => [el("li", {}, "Nothing happens where nothing is deployed.")]);
      return;
    }
    this.words.textContent = found.problem || found.name;
    this.words.className = found.problem ? "note bad" : "empty";
    keepIfSame(this.edges, found.edges, () => [table(found.edges)]);
    const events = [...found.events].reverse();
    keepIfSame(this.events, events, () => (events.length ? events.map(line) : [el("li", {}, "Nothing has happened since this page began to look.")]));
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
    const down = links.filter(([, state]) => !state.startsWith("up")).map(([peer]) => peer);
    const cells = {
      edge: edge.name, period: `${edge.period}/${edge.periods}`, phase: edge.phase,
      clients: `${edge.clients.length}/${edge.expected}`,
      links: `${links.length - down.length}/${links.length}${down.length ? ` (down: ${down.join(", ")})` : ""}`,
      late: edge.late, refused: edge.refused, "s/period": short(edge.seconds_per_period, 4), apart: short(edge.disagreement, 3),
      loss: short(edge.loss, 5), accuracy: short(edge.accuracy, 5),
      memory: edge.memory ? `${short(edge.memory / 1e6, 4)} MB` : "–",
      certificate: edge.certificate_hours === null ? "–" : `${short(edge.certificate_hours, 4)} h left`,
    };
    return el("tr", { "data-edge": edge.name }, ...COLUMNS.map((name) =>
      el("td", { "data-cell": name, class: name === "links" && down.length ? "bad" : null }, String(cells[name]))));
  }));
}

function line(event) {
  const lasts = event.ended === null;
  const length = event.ended - event.began;
  const end = lasts ? ", and has not come back" : length > 0 ? `, ${event.back} after ${short(Number(length.toFixed(1)))} s` : "";
  const words = `${event.what} at ${clockTime(event.began)}${event.back ? (lasts && event.back !== "back" ? ", still" : end) : ""}`;
  return el("li", { class: lasts ? "open" : "", "data-event": event.number }, words, el("span", { class: "cause" }, event.cause));
}
