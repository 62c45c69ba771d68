// Clients and the models that travel, on a canvas: ten thousand of them move smoothly.

import { along } from "./geometry.js";
import { colour } from "./util.js";

const SHARPEST = 2; // pixels of the canvas for one of the page

export class Crowd {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.canvas.dataset.testid = "crowd";
    this.paper = this.canvas.getContext("2d");
  }

  resize(width, height, scale) {
    const sharp = Math.min(SHARPEST, scale * (devicePixelRatio || 1));
    Object.assign(this, { width, height, sharp });
    this.canvas.width = Math.round(width * sharp);
    this.canvas.height = Math.round(height * sharp);
  }

  // places: of `placeAll`; world: nodes with what their clients are; doing(n): what server n does,
  // as [part, share] or null; exchanges: how often a model goes over a link meanwhile.
  draw(places, world, doing, exchanges) {
    const { paper, sharp } = this;
    paper.setTransform(sharp, 0, 0, sharp, 0, 0);
    paper.clearRect(0, 0, this.width, this.height);
    const [still, compute, upload, exchange, download, guest, line] = ["c0", "compute", "upload", "exchange", "download", "c1", "soft"].map(colour);
    this.packets = 0;
    paper.setTransform(1, 0, 0, 1, 0, 0);
    paper.drawImage(this.seated(places, world, still, guest, line), 0, 0);
    paper.setTransform(sharp, 0, 0, sharp, 0, 0);
    paper.fillStyle = compute;
    world.nodes.forEach((node, n) => {
      if (doing(n)?.[0] !== "compute") return;
      const { places: at, size } = places.seats[n];
      for (let c = 0; c < node.clients; c += 1) this.dot(paper, at[2 * c], at[2 * c + 1], size);
    });
    world.nodes.forEach((node, n) => {
      const [part, share] = doing(n) ?? [null, 0];
      if (part === "upload" || part === "download") this.between(places, n, node, part === "upload" ? share : 1 - share, part === "upload" ? upload : download);
    });
    if (places.hub) world.nodes.forEach((_, n) => {
      const [part, share] = doing(n) ?? [null, 0];
      if (part === "exchange") this.packet(along({ from: places.points[n], to: places.hub, bend: null }, share < 0.5 ? 2 * share : 2 - 2 * share), exchange, 5);
    });
    world.links.forEach((link, n) => {
      if (!link.up) return;
      for (const [end, turns] of [[link.a, false], [link.b, true]]) {
        const [part, share] = doing(end) ?? [null, 0];
        if (part !== "exchange") continue;
        const done = trim(places, n, (share * Math.max(1, exchanges)) % 1, turns ? link.b : link.a);
        this.packet(along(places.ways[n], turns ? 1 - done : done), exchange, world.links.length > 150 ? 2.5 : 5);
      }
    });
    this.canvas.dataset.packets = this.packets;
  }

  // All clients at rest, drawn once: again only where they, the theme or the size are others.
  seated(places, world, still, guest, line) {
    const mark = [places, world.live ? world : null, still, this.width, this.sharp];
    if (this.mark?.every((value, n) => value === mark[n])) return this.resting;
    this.mark = mark;
    this.resting = Object.assign(document.createElement("canvas"), { width: this.canvas.width, height: this.canvas.height });
    const paper = this.resting.getContext("2d");
    paper.setTransform(this.sharp, 0, 0, this.sharp, 0, 0);
    world.nodes.forEach((node, n) => {
      const { places: at, size } = places.seats[n];
      for (let c = 0; c < node.clients; c += 1) {
        const [x, y, kind] = [at[2 * c], at[2 * c + 1], node.kinds?.[c]];
        [paper.strokeStyle, paper.fillStyle] = [line, kind === "guest" ? guest : still];
        if (kind === "guest") diamond(paper, x, y, 1.6 * size);
        else this.dot(paper, x, y, size, kind === "away");
      }
    });
    return this.resting;
  }

  dot(paper, x, y, size, isHollow = false) {
    if (size < 2.5 && !isHollow) { paper.fillRect(x - size, y - size, 2 * size, 2 * size); return; }
    paper.beginPath();
    paper.arc(x, y, size, 0, 2 * Math.PI);
    if (isHollow) paper.stroke();
    else paper.fill();
  }

  between(places, n, node, share, fill) {
    const { places: at, size } = places.seats[n];
    const [x, y] = places.points[n];
    this.paper.fillStyle = fill;
    const half = Math.max(0.7, 0.7 * size);
    for (let c = 0; c < node.clients; c += 1) {
      const [dx, dy] = [x - at[2 * c], y - at[2 * c + 1]];
      const done = share * Math.max(0, 1 - places.radii[n] / Math.hypot(dx, dy));
      this.paper.fillRect(at[2 * c] + done * dx - half, at[2 * c + 1] + done * dy - half, 2 * half, 2 * half);
    }
    this.packets += node.clients;
  }

  packet([x, y], fill, half) {
    this.paper.fillStyle = fill;
    this.paper.fillRect(x - half, y - half, 2 * half, 2 * half);
    this.packets += 1;
  }
}

function diamond(paper, x, y, far) {
  paper.beginPath();
  for (const [dx, dy] of [[0, -far], [far, 0], [0, far], [-far, 0]]) paper.lineTo(x + dx, y + dy);
  paper.fill();
}

// From the rim of a server to that of the other, so that no name is covered.
function trim(places, n, share, end) {
  const { from, to } = places.ways[n];
  const rim = Math.min(0.4, places.radii[end] / Math.max(1, Math.hypot(to[0] - from[0], to[1] - from[1])));
  return rim + share * (1 - 2 * rim);
}
