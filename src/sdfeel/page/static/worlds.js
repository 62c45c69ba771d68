// What the stage shows: the network of a run, or a deployment as its edges answer.

import { bytes } from "./util.js";
import { percent } from "./units.js";
import { DEPLOYMENT } from "./choice.js";

export function runWorld(run, graph) {
  const nodes = graph.names.map((name, n) => ({
    name, clients: graph.clients[n], present: graph.clients[n], expected: graph.clients[n], share: graph.shares[n],
    says: () => [`${percent(graph.shares[n])} of all data`],
  }));
  const links = graph.links.map(([a, b]) => ({ a, b, name: `${a}-${b}`, up: true, bytes: graph.link_bytes_per_round ?? 0 }));
  for (const link of links) link.says = () => [`${bytes(link.bytes)} a round, ${bytes(link.sofar)} so far`];
  const scales = new Map();
  // Over the whole run, so that a colour means the same at any second.
  const extremes = (names) => {
    const key = names[0] ?? "";
    if (scales.get(key)?.changes !== run.trace.changes) {
      let [low, high] = [Infinity, -Infinity];
      for (const column of names.map((name) => run.trace.columns.get(name))) {
        for (let n = 0; column && n < column.length; n += 1) {
          const value = column.data[n];
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
      scales.set(key, { changes: run.trace.changes, low, high });
    }
    return scales.get(key);
  };
  return {
    key: run.name, run, graph, nodes, links, hub: graph.hub, positions: graph.positions,
    read(moment) {
      const value = (name) => (moment?.traced >= 0 ? run.trace.columns.get(name)?.data[moment.traced] : undefined);
      const rounds = moment && graph.tau ? Math.floor(moment.iteration / graph.tau) : 0;
      for (const link of links) { link.apart = value(link.name); link.sofar = rounds * link.bytes; }
      nodes.forEach((node, n) => { node.accuracy = value(`accuracy ${n}`); node.loss = value(`loss ${n}`); });
    },
    mostApart: () => { const { high } = extremes(links.map((link) => link.name)); return high > 0 ? high : 1e-12; },
    range: (by) => { const { low, high } = extremes(nodes.map((_, n) => `${by} ${n}`)); return high >= low ? [low, high] : null; },
    why() {
      if (!links.length || run.metrics.rows === 0) return null;
      if (links.length > 500) return "How far apart the ends of links are is noted for up to 500 links.";
      return run.trace.columns.has(links[0].name) ? null : "This run has no trace.csv, which says how far apart the ends of a link are.";
    },
  };
}

export function liveWorld({ edges, links, homes }) {
  const at = new Map(edges.map((edge, n) => [edge.name, n]));
  const seated = new Set(edges.flatMap((edge) => edge.clients ?? []));
  const nodes = edges.map((edge) => {
    const guests = (edge.clients ?? []).filter((client) => !homes[edge.name].includes(client));
    const kinds = [...homes[edge.name].map((client) => ((edge.clients ?? []).includes(client) ? "home" : "away")), ...guests.map(() => "guest")];
    return {
      name: edge.name, edge, clients: kinds.length, kinds, present: (edge.clients ?? []).length, expected: homes[edge.name].length, share: 1 / edges.length,
      accuracy: edge.problem ? undefined : edge.accuracy ?? undefined, loss: edge.problem ? undefined : edge.loss ?? undefined,
      says: () => (edge.problem ? [edge.problem] : [`period ${edge.period} of ${edge.periods}, ${edge.phase}`,
        ...(guests.length ? [`guests: ${guests.join(", ")}`] : []), ...homes[edge.name].filter((client) => !seated.has(client)).map((client) => `${client} is not here`)]),
    };
  });
  const drawn = links.map(([a, b]) => {
    const [from, to] = [edges[at.get(a)], edges[at.get(b)]];
    const ends = [from.links?.[b], to.links?.[a]].filter(Boolean);
    const up = ends.length > 0 && ends.every((end) => end.up) && !from.problem && !to.problem;
    // Either end counts what it has seen since it was started: who was there for longer knows more.
    const most = (value) => Math.max(0, ...ends.map(value));
    const link = { a: at.get(a), b: at.get(b), name: `${a}-${b}`, up, bytes: most((end) => end.sent + end.received), apart: most((end) => end.disagreement) };
    link.says = () => [`exchanges used + skipped: ${ends.map((end) => `${end.used}+${end.skipped}`).join(" / ")}`, `${bytes(link.bytes)} so far, both ways`];
    return link;
  });
  const values = (by) => nodes.map((node) => node[by]).filter(Number.isFinite);
  return {
    key: DEPLOYMENT, live: true, nodes, links: drawn, hub: null, read() {},
    mostApart: () => Math.max(1e-12, ...drawn.map((link) => link.apart)),
    range: (by) => (values(by).length ? [Math.min(...values(by)), Math.max(...values(by))] : null),
    why: () => null,
  };
}
