// What all views share: elements made from text, numbers as people read them, colours of the theme.

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// Text is always a text node: no name or path of a run becomes markup.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A page that was saved has all answers in it.
const saved = document.getElementById("saved");
const answers = saved ? new Map(Object.entries(JSON.parse(saved.textContent))) : null;

function askSaved(view, query) {
  const pairs = Object.entries(query).map(([name, value]) => [name, String(value)]);
  const content = answers.get(JSON.stringify([view, pairs]));
  if (!content) throw new Error("this page was saved and has no server to ask: sdfeel watch has one");
  if (content.error) throw new Error(content.error);
  return content;
}

export const isSaved = answers !== null;

export async function ask(view, query = {}) {
  if (answers) return askSaved(view, query);
  const answer = await fetch(`api/${view}?${new URLSearchParams(query)}`);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? `status ${answer.status}`);
  return content;
}

// Six digits that count, as few characters as they need.
export function short(value, digits = 6) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return String(Number(value.toPrecision(digits)));
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let n = 0;
  while (value >= 1000 && n < units.length - 1) { value /= 1000; n += 1; }
  return `${short(value, 3)} ${units[n]}`;
}

export function clockTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

// Of the theme, asked for once: the browser works out all styles anew for an answer.
const known = new Map();

export function colour(name) {
  const key = `${document.documentElement.dataset.theme} ${name}`;
  if (!known.has(key)) known.set(key, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return known.get(key);
}

// How large letters are, of the usual 16 pixels: pictures grow with them.
export function zoom() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
}

// Whether a section is on the screen: what nobody sees need not move.
export function watchSeen(section, change) {
  let isSeen = true;
  new IntersectionObserver(([entry]) => {
    const before = isSeen;
    isSeen = entry.isIntersecting;
    if (isSeen && !before) change();
  }, { rootMargin: "100px" }).observe(section);
  return () => isSeen;
}

const DASHES = ["", "9 3", "2 3", "12 3 2 3", "18 5"];

// The same order as in the figures on paper.
export function look(number) {
  return { colour: `c${number % 7}`, dash: DASHES[number % 5] };
}

// A scheme looks the same here and on paper: its place in this list is the number of its look.
const SCHEMES = [
  "sd-feel", "hierfavg", "fedavg", "feel", "fedbuff", "fedasync", "d-psgd", "feel-all", "sync-sgd", "local",
];

// For each label a look of its own: that of the scheme it names, or the first one that is left.
export function looks(labels) {
  const numbers = labels.map((label) =>
    label.split("/").map((part) => SCHEMES.indexOf(part.split(/[\s,:(]/)[0])).find((n) => n >= 0) ?? -1);
  const taken = new Set();
  const own = numbers.map((n) => {
    if (n < 0 || taken.has(n)) return -1;
    taken.add(n);
    return n;
  });
  let next = 0;
  return own.map((n) => {
    if (n >= 0) return look(n);
    while (taken.has(next)) next += 1;
    taken.add(next);
    return look(next);
  });
}

// Round numbers between two others.
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
  return found;
}

export function logTicks(low, high) {
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p += 1) {
    for (const m of [1, 2, 5]) found.push(m * 10 ** p);
  }
  const inside = found.filter((v) => v >= low * 0.9999 && v <= high * 1.0001);
  return inside.length > 8 ? inside.filter((v) => Number.isInteger(Math.round(Math.log10(v) * 1e6) / 1e6)) : inside;
}

const tip = document.getElementById("tip");

// Beside the pointer, on the side where there is room; never more than half of the window.
export function showTip(content, x, y) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - box.width - 16 : x + 16;
  const top = y + 16 + box.height > innerHeight ? y - box.height - 16 : y + 16;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(top, innerHeight - box.height - 4))}px`;
}

export function hideTip() {
  tip.hidden = true;
}

export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// Replaces the children of a node only where the text they are made from has changed.
export function keepIfSame(node, mark, make) {
  const text = JSON.stringify(mark);
  if (node.dataset.mark === text) return;
  node.dataset.mark = text;
  node.replaceChildren(...make());
}
