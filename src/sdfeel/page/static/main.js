// The page: one look after the other, each view drawn from the store.

import { Address } from "./address.js";
import { Choice } from "./choice.js";
import { Clock, SPEEDS } from "./clock.js";
import { CursorBar } from "./cursor.js";
import { Curves } from "./curves.js";
import { DeploymentView } from "./deployment.js";
import { Editor } from "./editor.js";
import { NetworkView } from "./network.js";
import { Overview } from "./overview.js";
import { Presentation } from "./present.js";
import { Store } from "./store.js";
import { TimeView } from "./time.js";
import { ask, el, isSaved, keepIfSame } from "./util.js";
import { WhatIf } from "./what_if.js";

const EVERY = 300; // milliseconds between two looks
const AWAY = 2000; // where nobody sees the page
const SAVED = "This page was saved. What asks for something new needs a server: sdfeel watch.";

let wantedSecond = NaN; // of the address, until there are rows
const section = (name) => document.getElementById(name);
const store = new Store();
const clock = new Clock();
const choice = new Choice(store);
const overview = new Overview(section("overview"), store);
const curves = new Curves(section("curves"), store, clock, choice);
const network = new NetworkView(section("network"), store, clock, choice);
const time = new TimeView(section("time"), store, clock, choice);
const deployment = new DeploymentView(section("deployment"), store);
const whatIf = isSaved ? null : new WhatIf(section("what-if")); // it asks the server for something new
const editor = isSaved ? null : new Editor(section("editor"), choice);
new CursorBar(section("cursor"), clock, choice);
choice.on(() => { clock.follows = true; follow(); network.draw(); time.draw(); curves.move(); editor?.draw(); });

if (isSaved) for (const name of ["what-if", "editor"]) hideView(name);

function hideView(name, hidden = true) {
  section(name).hidden = hidden;
  document.querySelector(`nav a[href="#${name}"]`).hidden = hidden;
}

// The seconds of the run that is looked at are those of the clock.
function follow() { clock.take(choice.run?.column("seconds") ?? null); }

const present = new Presentation(document.querySelector("header"), draw);
const address = new Address();
address.bind("run", () => choice.wanted, (name) => choice.pick(name));
address.bind("at", () => (clock.follows || clock.playing ? "" : clock.now), (text) => { wantedSecond = Number(text); });
address.bind("speed", () => (clock.speed === 1 ? "" : clock.speed), (text) => { if (SPEEDS.includes(Number(text))) clock.speed = Number(text); });
address.bind("colour", () => (network.colours.value === "accuracy" ? "" : network.colours.value || "nothing"), (text) => { network.colours.value = text === "nothing" ? "" : text; });
address.bind("rounds", () => (time.rounds.value === "4" ? "" : time.rounds.value), (text) => { time.rounds.value = text; });
curves.bind(address);
overview.bind(address);
editor?.bind(address);
present.bind(address);

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
  whatIf?.draw();
  editor?.draw();
}

function state(answer) {
  const going = answer.runs.filter((run) => run.state === "under way").length;
  const damaged = answer.runs.filter((run) => run.state === "damaged").length;
  const rows = answer.runs.reduce((sum, run) => sum + run.rows, 0);
  return `${answer.runs.length} runs, ${going} under way, ${damaged ? `${damaged} damaged, ` : ""}${rows} rows`;
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
  const notes = isSaved ? [...answer.notes, SAVED] : answer.notes;
  keepIfSame(section("notes"), notes, () => notes.map((note) => el("p", { class: "note" }, note)));
  whatIf?.offer(answer.plans);
  // With nothing but a deployment, and what its edges write, that is what the page is about.
  if (answer.deployment && answer.runs.every((run) => run.real)) section("overview").before(section("deployment"));
  hideView("deployment", !answer.deployment);
  choice.update();
  follow();
  if (Number.isFinite(wantedSecond) && clock.end > 0) { clock.set(wantedSecond); wantedSecond = NaN; }
  if (isNew("runs", answer)) {
    overview.draw();
    curves.draw();
    network.draw();
    time.draw();
    editor?.draw();
    if (!document.documentElement.dataset.drawn) address.scroll();
    document.documentElement.dataset.drawn = "yes";
  } else if (!time.found?.whole) time.draw();
}

// On its own: a long run that is being read must not keep a fault waiting.
async function lookAtDeployment() {
  if (!store.answer?.deployment) return;
  store.deployment = await ask("deployment");
  const { asked, ...shown } = store.deployment;
  if (!isNew("deployment", shown)) return;
  choice.update();
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

// Nothing changes any more in a page that was saved.
if (isSaved) lookAtRuns().then(lookAtDeployment);
else { again(lookAtRuns); again(lookAtDeployment); }
