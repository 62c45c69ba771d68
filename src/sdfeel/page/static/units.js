// Numbers as people read them: three digits that count, units, percent; a run's columns in words.

import { short } from "./util.js";

const PREFIXES = ["", "k", "M", "G", "T", "P"];

export function three(value) {
  return short(value, 3);
}

export function seconds(value) {
  return value === null || value === undefined || Number.isNaN(value) ? "–" : `${three(value)} s`;
}

export function percent(value) {
  return `${three(Number((100 * value).toPrecision(3)))} %`;
}

// 10 GFLOP/s, 5 Mbit/s.
export function quantity(value, unit) {
  let [n, left] = [0, value];
  while (left >= 1000 && n < PREFIXES.length - 1) { left /= 1000; n += 1; }
  return `${three(left)} ${PREFIXES[n]}${unit}`;
}

// What somebody typed: 10G, 5 Mbit/s, 5e6 or 5000000; as a plain number, or as it was.
export function plain(text) {
  const found = /^\s*([\d.]+(?:e[+-]?\d+)?)\s*([kMGTP]?)[a-zA-Z/]*\s*$/.exec(text);
  return found ? String(Number(found[1]) * 1000 ** PREFIXES.indexOf(found[2])) : text;
}

const WORDS = {
  train_loss: "training loss", test_loss: "test loss", batch_loss: "loss of the mini-batches",
  train_accuracy: "training accuracy", test_accuracy: "test accuracy", disagreement: "disagreement of the servers",
  idle_share: "time that servers wait", server_loss_min: "test loss, best server", server_loss_mean: "test loss, mean of servers",
  server_loss_max: "test loss, worst server", server_accuracy_min: "test accuracy, worst server",
  server_accuracy_mean: "test accuracy, mean of servers", server_accuracy_max: "test accuracy, best server",
};

export function titleOf(column) {
  return WORDS[column] ?? column.replaceAll("_", " ");
}

export function isShare(column) {
  return /accuracy|share/.test(column);
}
