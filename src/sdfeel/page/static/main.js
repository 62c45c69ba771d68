// The page: one look after the other, each view drawn from the store.

import { Curves } from "./curves.js";
import { DeploymentView } from "./deployment.js";
import { NetworkView } from "./network.js";
import { Overview } from "./overview.js";
import { Store } from "./store.js";
import { TimeView } from "./time.js";
import { ask, el, keepIfSame } from "./util.js";
import { WhatIf } from "./what_if.js";

const EVERY = 300; // milliseconds between two looks
const AWAY = 2000; // where nobody sees the page

const section = (name) => document.getElementById(name);
const store = new Store();
const overview = new Overview(section("overview"), store);
const curves = new Curves(section("curves"), store);
const network = new NetworkView(section("network"), store);
const time = new TimeView(section("time"), store);
const deployment = new DeploymentView(section("deployment"), store);
const whatIf = new WhatIf(section("what-if"));

// Light or dark as the system is, until somebody chooses.
const dark = matchMedia("(prefers-color-scheme: dark)");
const button = section("theme");

function theme(chosen) {
  const now = chosen ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now;
  button.textContent = now === "dark" ? "light" : "dark";
  button.setAttribute("aria-label", `Use ${button.textContent} colours`);
}

function chosenTheme() {
  try { return localStorage.getItem("sdfeel-theme"); } catch { return null; }
}

theme(chosenTheme());
dark.addEventListener("change", () => { theme(chosenTheme()); draw(); });
button.addEventListener("click", () => {
  const next = button.textContent;
  try { localStorage.setItem("sdfeel-theme", next); } catch { /* for this page only */ }
  theme(next);
  draw();
});

function draw() {
  overview.draw();
  curves.draw();
  deployment.draw();
  network.draw();
  time.draw();
  whatIf.draw();
}

function state(answer) {
  const going = answer.runs.filter((run) => run.state === "under way").length;
  const rows = answer.runs.reduce((sum, run) => sum + run.rows, 0);
  return `${answer.runs.length} runs, ${going} under way, ${rows} rows`;
}

// What the last looks saw; nothing is drawn again where nothing is new.
const seen = { runs: "", deployment: "" };

function isNew(which, answer) {
  const now = JSON.stringify(answer);
  const before = seen[which];
  seen[which] = now;
  return now !== before;
}

async function lookAtRuns() {
  const answer = await store.look();
  section("state").textContent = state(answer);
  keepIfSame(section("notes"), answer.notes, () => answer.notes.map((note) => el("p", { class: "note" }, note)));
  whatIf.offer(answer.plans);
  // With nothing but a deployment that is what the page is about.
  if (answer.deployment && !answer.runs.length) section("overview").before(section("deployment"));
  if (isNew("runs", answer)) {
    overview.draw();
    curves.draw();
    network.draw();
    time.draw();
    document.documentElement.dataset.drawn = "yes";
  } else if (!time.found?.whole) time.draw();
}

// On its own: a long run that is being read must not keep a fault waiting.
async function lookAtDeployment() {
  if (!store.answer?.deployment) return;
  store.deployment = await ask("deployment");
  const { asked, ...shown } = store.deployment;
  if (!isNew("deployment", shown)) return;
  deployment.draw();
  network.draw();
  time.draw();
}

async function again(look) {
  try {
    await look();
  } catch (problem) {
    section("state").textContent = `the server does not answer (${problem.message}); it is asked again`;
  }
  setTimeout(() => again(look), document.hidden ? AWAY : EVERY);
}

again(lookAtRuns);
again(lookAtDeployment);
