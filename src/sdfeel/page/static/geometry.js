// From a layout to pixels: where nodes, links and clients are on a stage of some size.

import { layout, round } from "./layout.js";

const TURN = Math.PI * (3 - Math.sqrt(5)); // of seeds in a sunflower
export const FEW = 12; // clients that stand in an arc

// nodes: [{clients, share}], links: [{a, b}]; a hub is one more node, after the others.
export function placeAll({ nodes, links, hub, positions }, width, height) {
  const pairs = links.map(({ a, b }) => [a, b]);
  const plan = hub ? round(nodes.length) : layout(nodes.length, pairs, positions);
  const most = Math.max(0, ...nodes.map((node) => node.clients));
  const margin = most > FEW ? 78 : 62;
  const half = [(width - 2 * margin) / 2, (height - 2 * margin) / 2];
  const size = plan.stretch ? half : [Math.min(...half), Math.min(...half)];
  const at = ([x, y]) => [width / 2 + size[0] * x, height / 2 + size[1] * y];
  const points = plan.points.map(at);
  const room = nodes.length > 1 ? nearest(points) : 2 * Math.min(...half);
  const usual = Math.max(4, Math.min(22, 0.3 * room));
  const mean = 1 / Math.max(1, nodes.length);
  const radii = nodes.map((node) => usual * Math.min(1.5, Math.max(0.6, Math.sqrt((node.share ?? mean) / mean))));
  const ways = links.map((link, n) => ({ from: points[link.a], to: points[link.b], bend: plan.bends.has(n) ? at(plan.bends.get(n)) : null }));
  const centre = [width / 2, height / 2];
  const seats = nodes.map((node, n) => seatsOf(points[n], radii[n], node.clients, plan.outwards && !isSame(points[n], centre) ? centre : null, room));
  return { kind: plan.kind, outwards: plan.outwards, centre, points, radii, ways, seats, hub: hub ? points[nodes.length] : null, room };
}

export const isSame = ([a, b], [c, d]) => Math.hypot(a - c, b - d) < 1;

function nearest(points) {
  let least = Infinity;
  for (let a = 0; a < points.length; a += 1) {
    for (let b = a + 1; b < points.length; b += 1) least = Math.min(least, Math.hypot(points[a][0] - points[b][0], points[a][1] - points[b][1]));
  }
  return least;
}

// Places of a server's clients, as x, y, x, y, ...; and how large each may be.
export function seatsOf([x, y], radius, count, centre, room) {
  const places = new Float32Array(2 * count);
  const away = centre ? Math.atan2(y - centre[1], x - centre[0]) : -Math.PI / 2;
  let size = Math.max(2, radius / 4.5);
  const put = (n, px, py) => { places[2 * n] = px; places[2 * n + 1] = py; };
  if (count <= FEW && radius > 8) {
    const step = centre ? Math.PI / Math.max(8, count) : (2 * Math.PI) / count;
    for (let n = 0; n < count; n += 1) {
      const angle = away + (n - (count - 1) / 2) * step;
      put(n, x + (radius + 3.2 * size) * Math.cos(angle), y + (radius + 3.2 * size) * Math.sin(angle));
    }
  } else if (centre) {
    const [wide, deep] = [Math.max(4, 0.9 * Math.min(room, 60)), 56];
    const gap = Math.min(9, Math.sqrt((wide * deep) / count));
    const columns = Math.max(1, Math.floor(wide / gap));
    size = Math.max(0.7, 0.4 * gap);
    for (let n = 0; n < count; n += 1) {
      const [across, out] = [((n % columns) - (columns - 1) / 2) * gap, radius + 4 + gap * Math.floor(n / columns)];
      put(n, x + out * Math.cos(away) - across * Math.sin(away), y + out * Math.sin(away) + across * Math.cos(away));
    }
  } else {
    const far = Math.max(radius + 6, Math.min(0.48 * room, radius + Math.max(70, 20 * Math.sqrt(count))));
    size = Math.max(0.7, Math.min(4, 0.45 * Math.sqrt((Math.PI * (far ** 2 - radius ** 2)) / Math.max(1, count))));
    for (let n = 0; n < count; n += 1) {
      const out = Math.sqrt((radius + size + 2) ** 2 + ((n + 0.5) / count) * (far ** 2 - (radius + 2) ** 2));
      put(n, x + out * Math.cos(n * TURN), y + out * Math.sin(n * TURN));
    }
  }
  return { places, size };
}

// A point on a link.
export function along({ from, to, bend }, share) {
  if (!bend) return [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])];
  const [p, q, r] = [(1 - share) ** 2, 2 * share * (1 - share), share ** 2];
  return [p * from[0] + q * bend[0] + r * to[0], p * from[1] + q * bend[1] + r * to[1]];
}
