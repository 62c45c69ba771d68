// Colours of numbers, and letters that can be read on them.

import { colour, el, svg } from "./util.js";

// Viridis, which reads alike for all eyes and in grey; without the end that the paper would swallow.
const LINKS = { light: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [70, 175, 100], [170, 195, 30]], dark: [[105, 90, 205], [75, 130, 200], [45, 170, 165], [110, 210, 105], [253, 231, 37]] };
const NODES = [[255, 247, 188], [199, 233, 180], [127, 205, 187], [65, 182, 196], [34, 94, 168], [8, 48, 110]];

function mixed(scale, share) {
  const at = Math.min(1, Math.max(0, share)) * (scale.length - 1);
  const n = Math.min(scale.length - 2, Math.floor(at));
  return scale[n].map((low, i) => Math.round(low + (scale[n + 1][i] - low) * (at - n)));
}

const css = (rgb) => `rgb(${rgb.join(" ")})`;
const theme = () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light");

export const linkShade = (share) => css(mixed(LINKS[theme()], share));
export const nodeShade = (share) => css(mixed(NODES, share));

// Black or white, which of them can be read: one always has 4.5:1.
export function onTop(fill) {
  const rgb = fill.startsWith("#") ? [1, 3, 5].map((n) => parseInt(fill.slice(n, n + 2), 16)) : fill.match(/\d+/g).slice(0, 3).map(Number);
  const [r, g, b] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

export function scaleBar(shade, low, high, words) {
  const steps = Array.from({ length: 40 }, (_, n) => svg("rect", { x: n * 6, y: 0, width: 6.5, height: 12, fill: shade(n / 39) }));
  const text = { y: 27, fill: colour("ink"), "font-size": 12 };
  return el("figure", { class: "scale" }, svg("svg", { viewBox: "0 0 244 32", role: "img", "aria-label": `${words}: ${low} to ${high}` }, ...steps,
    svg("text", { x: 0, ...text }, low), svg("text", { x: 240, "text-anchor": "end", ...text }, high)), el("figcaption", {}, words));
}
