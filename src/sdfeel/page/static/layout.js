// Where servers stand: each graph as people draw it, others by forces; the same picture every time.

// points in [-1, 1] x [-1, 1]; stretch: the picture may be as wide as there is room; bends: links that
// have to go round, by number, as the place of their middle; outwards: clients stand away from the centre.
// positions: on a map, with north above, if somebody gave them.
export function layout(count, links, positions = null) {
  if (positions && count > 1) return { kind: "given", points: onMap(positions), bends: new Map(), stretch: false, outwards: false };
  if (count <= 1) return { kind: "one", points: [[0, 0]], bends: new Map(), outwards: false };
  const beside = neighbours(count, links);
  const found = chain(count, links, beside) ?? star(count, links, beside) ?? full(count, links) ?? dumbbell(count, links)
    ?? bipartite(count, links, beside) ?? lattice(count, links) ?? chords(count, beside) ?? forces(count, links);
  return { bends: new Map(), stretch: false, outwards: false, ...found };
}

// A hub in the middle of all others, which no client belongs to.
export function round(count) {
  return { kind: "hub", points: [...circle(count), [0, 0]], bends: new Map(), stretch: false, outwards: true };
}

function neighbours(count, links) {
  const beside = Array.from({ length: count }, () => new Set());
  for (const [a, b] of links) { beside[a].add(b); beside[b].add(a); }
  return beside;
}

function circle(count, from = -Math.PI / 2, whole = 2 * Math.PI) {
  const step = whole / (whole < 6 ? Math.max(1, count - 1) : count);
  return Array.from({ length: count }, (_, n) => [Math.cos(from + n * step), Math.sin(from + n * step)]);
}

function placed(order, places) {
  const points = [];
  order.forEach((server, n) => { points[server] = places[n]; });
  return points;
}

// A ring or a path, however its servers are numbered.
function chain(count, links, beside) {
  const ends = beside.map((_, n) => n).filter((n) => beside[n].size === 1);
  if (beside.some((near) => near.size < 1 || near.size > 2) || ![0, 2].includes(ends.length)) return null;
  const order = [ends[0] ?? 0];
  while (order.length < count) {
    const last = order[order.length - 1];
    const next = [...beside[last]].sort((a, b) => a - b).find((n) => n !== order[order.length - 2] && n !== order[0]);
    if (next === undefined) return null;
    order.push(next);
  }
  if (!ends.length) return { kind: "ring", points: placed(order, circle(count)), outwards: true };
  if (count > 14) return { kind: "path", points: placed(order, circle(count, 0.75 * Math.PI, 1.5 * Math.PI)), outwards: true };
  return { kind: "path", points: placed(order, order.map((_, n) => [(2 * n) / (count - 1) - 1, 0])), stretch: true };
}

function star(count, links, beside) {
  const hub = beside.findIndex((near) => near.size === count - 1);
  if (count < 4 || hub < 0 || links.length !== count - 1) return null;
  const places = circle(count - 1);
  return { kind: "star", points: beside.map((_, n) => (n === hub ? [0, 0] : places[n - (n > hub)])), outwards: true };
}

function full(count, links) {
  return links.length === (count * (count - 1)) / 2 ? { kind: "full", points: circle(count), outwards: true } : null;
}

function dumbbell(count, links) {
  const half = count / 2;
  if (count % 2 || half < 3 || links.length !== half * (half - 1) + 1) return null;
  const bridge = links.filter(([a, b]) => (a < half) !== (b < half));
  if (bridge.length !== 1) return null;
  const [left, right] = [...bridge[0]].sort((a, b) => a - b);
  const side = (n, first, x, from) => {
    const [cos, sin] = circle(half, from)[(n - first + half) % half];
    return [x + 0.42 * cos, 0.85 * sin];
  };
  return { kind: "dumbbell", stretch: true, points: Array.from({ length: count }, (_, n) => (n < half ? side(n, left, -0.55, 0) : side(n, right, 0.55, Math.PI))) };
}

// Every server of one side with every one of the other.
function bipartite(count, links, beside) {
  const side = Array(count).fill(-1);
  side[0] = 0;
  const todo = [0];
  while (todo.length) {
    const n = todo.pop();
    for (const near of beside[n]) {
      if (side[near] === side[n]) return null;
      if (side[near] < 0) { side[near] = 1 - side[n]; todo.push(near); }
    }
  }
  const sides = [0, 1].map((which) => side.map((_, n) => n).filter((n) => side[n] === which));
  if (sides[0].length < 2 || sides[1].length < 2 || links.length !== sides[0].length * sides[1].length) return null;
  const points = [];
  sides.forEach((servers, which) => servers.forEach((server, n) => { points[server] = [which ? 0.7 : -0.7, servers.length > 1 ? (2 * n) / (servers.length - 1) - 1 : 0]; }));
  return { kind: "bipartite", points, stretch: true };
}

// A grid or a torus whose servers are numbered row by row, the most square one that fits.
function lattice(count, links) {
  const has = new Set(links.map(([a, b]) => `${Math.min(a, b)}-${Math.max(a, b)}`));
  for (let rows = Math.floor(Math.sqrt(count)); rows >= 2; rows -= 1) {
    const columns = count / rows;
    for (const wraps of Number.isInteger(columns) ? [false, true] : []) {
      const wanted = latticeLinks(rows, columns, wraps);
      if (wanted.size !== has.size || ![...wanted.keys()].every((name) => has.has(name))) continue;
      const points = Array.from({ length: count }, (_, n) => [(2 * (n % columns)) / (columns - 1) - 1, (2 * Math.floor(n / columns)) / (rows - 1) - 1]);
      const bends = new Map();
      links.forEach(([a, b], n) => {
        const way = wanted.get(`${Math.min(a, b)}-${Math.max(a, b)}`);
        const [x, y] = points[Math.min(a, b)];
        if (way === "row") bends.set(n, [0, y + (y > 0 ? 0.9 : -0.9) / rows]);
        if (way === "column") bends.set(n, [x + (x > 0 ? 0.9 : -0.9) / columns, 0]);
      });
      return { kind: wraps ? "torus" : "grid", points, bends, stretch: true };
    }
  }
  return null;
}

function latticeLinks(rows, columns, wraps) {
  const links = new Map();
  const add = (a, b, way) => { if (a !== b && !links.has(`${Math.min(a, b)}-${Math.max(a, b)}`)) links.set(`${Math.min(a, b)}-${Math.max(a, b)}`, way); };
  for (let n = 0; n < rows * columns; n += 1) {
    if ((n + 1) % columns) add(n, n + 1, "");
    if (n + columns < rows * columns) add(n, n + columns, "");
  }
  for (let n = 0; wraps && n < rows; n += 1) add(n * columns, n * columns + columns - 1, "row");
  for (let n = 0; wraps && n < columns; n += 1) add(n, (rows - 1) * columns + n, "column");
  return links;
}

// A ring with more links across.
function chords(count, beside) {
  if (!beside.every((near, n) => near.has((n + 1) % count))) return null;
  return { kind: "circle", points: circle(count), outwards: true };
}

// Fruchterman and Reingold, from a circle, so without chance.
function forces(count, links) {
  const points = circle(count).map(([x, y]) => [0.8 * x, 0.8 * y]);
  const rounds = Math.max(30, Math.min(300, Math.round(3e7 / count ** 2)));
  const length = 1.4 / Math.sqrt(count);
  for (let round = 0; round < rounds; round += 1) {
    const moves = points.map(([x, y]) => [-0.03 * x, -0.03 * y]); // parts without a link stay near
    for (let a = 0; a < count; a += 1) {
      for (let b = a + 1; b < count; b += 1) {
        const [dx, dy] = [points[a][0] - points[b][0], points[a][1] - points[b][1]];
        const push = length ** 2 / Math.max(1e-6, dx * dx + dy * dy);
        moves[a][0] += dx * push; moves[a][1] += dy * push;
        moves[b][0] -= dx * push; moves[b][1] -= dy * push;
      }
    }
    for (const [a, b] of links) {
      const [dx, dy] = [points[a][0] - points[b][0], points[a][1] - points[b][1]];
      const pull = Math.hypot(dx, dy) / length;
      moves[a][0] -= dx * pull; moves[a][1] -= dy * pull;
      moves[b][0] += dx * pull; moves[b][1] += dy * pull;
    }
    const most = 0.15 * (1 - round / rounds) + 0.002;
    moves.forEach(([dx, dy], n) => {
      const size = Math.max(1e-9, Math.hypot(dx, dy));
      points[n][0] += (dx / size) * Math.min(size, most);
      points[n][1] += (dy / size) * Math.min(size, most);
    });
  }
  return { kind: "forces", points: spread(points), stretch: true };
}

// As large as there is room, in their proportions.
function onMap(positions) {
  const range = [0, 1].map((axis) => {
    const values = positions.map((place) => place[axis]);
    return [Math.min(...values), Math.max(...values)];
  });
  const half = Math.max(1e-12, ...range.map(([low, high]) => (high - low) / 2));
  return positions.map((place) => place.map((value, axis) => ((axis ? -1 : 1) * (value - (range[axis][0] + range[axis][1]) / 2)) / half));
}

function spread(points) {
  const range = [0, 1].map((axis) => {
    const values = points.map((point) => point[axis]);
    return [Math.min(...values), Math.max(...values)];
  });
  return points.map((point) => point.map((value, axis) => {
    const [low, high] = range[axis];
    return high > low ? (2 * (value - low)) / (high - low) - 1 : 0;
  }));
}
