"""The harness itself: settings that say what the paper says, runs that are shared and resumed."""

import json
import shutil
import signal

import pandas as pd
import pytest
from pydantic import ValidationError

from sdfeel.algorithm.methods.codecs import CODECS
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, SGD, Momentum
from sdfeel.algorithm.methods.rates import Constant
from sdfeel.errors import InputError
from sdfeel.experiments.config import run_config
from sdfeel.experiments.jobs import Interrupted
from sdfeel.experiments.reproduce import (
    TARGETS,
    carry_out,
    read_target,
    reproduction_of,
    write_reports,
)
from sdfeel.experiments.reproduce.choice import Choice, choose, kept
from sdfeel.experiments.reproduce.document import notes
from sdfeel.experiments.reproduce.plan import RUNS
from sdfeel.experiments.reproduce.spec import CurveSpec, Planning
from sdfeel.files import FileLock

# The harness, and not the learning: a linear model and few steps.
TINY = [
    "model.name=logistic",
    "engine=vectorised",
    "network.servers=4",
    "network.clients_per_server=2",
    "steps=60",
    "evaluation.every=10",
    "evaluation.train_samples=100",
    "evaluation.test_samples=100",
]


# What a planner might say, without its minutes.
CHOICE = Choice(
    tau1=10,
    tau2=2,
    alpha=3,
    averager="chebyshev",
    budget=60,
    loss=1.5,
    bottleneck="uplink",
    of=36,
    trained=4000,
    doubts=("close race",),
)


def plan_of(names=TARGETS, **options):
    return reproduction_of(names, ask=lambda *_: CHOICE, **options)


def tiny(*names, seeds=2):
    return plan_of(names, profile="quick", dataset="mnist-5k", seeds=seeds, settings=TINY)


def outputs(out):
    """What a reader sees of an experiment, without paths and machines."""
    files = sorted(
        [*out.glob("fig*/*.csv"), *out.glob("fig*/*.svg"), *out.glob("**/verdicts.json")]
    )
    assert files
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    plan = tiny("fig6")
    carry_out(plan, out)
    return out, plan, write_reports(plan, out)


def test_every_figure_has_settings_curves_and_claims():
    for name in TARGETS:
        target = read_target(name)
        assert set(target.profile) == {"quick", "default", "full"}
        assert target.claim
        assert target.drawing


def test_settings_are_those_of_the_paper():
    plan = plan_of(profile="full")
    for job in plan.jobs:
        config = job.config
        assert config.settings.batch_size == 10
        assert config.settings.lr == Constant(0.01)
        assert (config.network.servers, config.network.clients_per_server) == (10, 5)
        assert (config.data.partition, config.data.concentration) == ("dirichlet-fedma", 0.5)
        assert (config.data.seed, config.model.seed) == (None, None)  # they follow the run's seed
    half = [job for job in plan.jobs if job.name == "fig6: beta = 0.5, seed 0"]
    assert half[0].config.settings.participation == 0.5
    by_label = {job.name: job.config.settings.schedule for job in plan.jobs}
    s = by_label["fig3: sd-feel, seed 0"]
    assert (s.tau1, s.tau2, s.alpha) == (2, 1, 5)
    s = by_label["fig4: tau1 = 20, seed 0"]
    assert (s.tau1, s.tau2, s.alpha) == (20, 1, 1)
    s = by_label["fig5-topology: ring, seed 0"]
    assert (s.tau1, s.tau2, s.alpha) == (5, 5, 1)
    s = by_label["fig6: beta = 0.5, seed 0"]
    assert (s.tau1, s.tau2, s.alpha) == (5, 1, 1)


def test_full_is_as_long_as_the_paper():
    plan = reproduction_of(["fig3"], profile="full", seeds=1)
    first = plan.jobs[0].config
    assert first.settings.steps == pytest.approx(250 * 60 / 0.237344 * 2, rel=1e-3)


def test_runs_that_figures_share_are_run_once_and_hashes_tell_runs_apart():
    plan = plan_of(profile="quick", seeds=1)
    curves = plan.curves
    ring = curves["fig5-topology"]["ring"]
    assert ring == curves["fig5-alpha"]["alpha = 1"] == curves["averagers"]["paper, alpha = 1"]
    assert curves["fig4"]["tau1 = 3"] == curves["fig4-tau2"]["tau2 = 1"]
    assert curves["fig4"]["tau1 = 20"] == curves["planner"]["figure 4: (20, 1, 1)"]
    wanted = sum(len(labels) for labels in curves.values())
    # Seven between figures; and three planned curves of `methods` that get the one answer here.
    assert len(plan.jobs) == wanted - 7 - 2
    assert len({job.folder for job in plan.jobs}) == len(plan.jobs)


def test_evaluations_fall_on_ends_of_rounds():
    for job in plan_of(profile="quick").jobs:
        s = job.config.settings.schedule
        assert job.config.settings.evaluate_every % (s.tau1 * s.tau2) == 0
        assert job.config.settings.steps % (s.tau1 * s.tau2) == 0


def test_one_seed_of_everything_comes_first():
    seeds = [job.seed for job in tiny("fig4", "fig6", seeds=3).jobs]
    assert seeds == sorted(seeds)


@pytest.mark.parametrize(
    ("names", "options", "field"),
    [
        (["fig7"], {}, "figure"),
        ([], {}, "figure"),
        (["fig3"], {"dataset": "imagenet"}, "--dataset"),
        (["fig3"], {"seeds": 0}, "--seeds"),
    ],
)
def test_mistakes_are_named(names, options, field):
    with pytest.raises(InputError) as mistake:
        reproduction_of(names, **options)
    assert mistake.value.field == field


def test_it_writes_figures_tables_verdicts_and_a_page(finished):
    out, _, verdicts = finished
    for name in ("fig6.png", "fig6.svg", "table.csv", "table.md", "curves.csv", "verdicts.md"):
        assert (out / "fig6" / name).stat().st_size > 0
    assert "fig6" in (out / "index.html").read_text("utf-8").lower()
    written = json.loads((out / "verdicts.json").read_text("utf-8"))
    assert [v["claim"] for v in written] == [v.claim.says for v in verdicts]
    assert {v["seeds"] for v in written} == {2}
    curves = pd.read_csv(out / "fig6" / "curves.csv")
    assert set(curves["seed"]) == {0, 1}
    assert set(curves["curve"]) == {"beta = 1", "beta = 0.8", "beta = 0.5"}


def test_curves_of_a_seed_start_alike_and_seeds_do_not(finished):
    curves = pd.read_csv(finished[0] / "fig6" / "curves.csv")
    start = curves[curves["iteration"] == 0].groupby("seed")["train_loss"]
    assert (start.max() == start.min()).all()
    assert start.max()[0] != start.max()[1]


def test_the_same_command_twice_gives_the_same_numbers(finished, tmp_path):
    carry_out(tiny("fig6"), tmp_path)
    write_reports(tiny("fig6"), tmp_path)
    assert outputs(tmp_path) == outputs(finished[0])


def test_what_is_done_is_not_done_again(finished):
    out, plan, _ = finished
    started = []
    carry_out(plan, out, on_start=lambda *words: started.append(words))
    assert started == []


def test_interrupted_and_resumed_gives_the_same_table(finished, tmp_path):
    stops = iter([2, 4])

    def interrupt(progress):
        # In the middle of a run: after its third evaluation.
        if progress.run.iteration == 30 and progress.number == stop:
            signal.raise_signal(signal.SIGINT)

    plan = tiny("fig6")
    for stop in stops:
        with pytest.raises(Interrupted):
            carry_out(plan, tmp_path, on_progress=interrupt)
        half = tmp_path / RUNS / plan.jobs[stop - 1].folder
        assert json.loads((half / "summary.json").read_text("utf-8"))["interrupted"] is True
    carry_out(plan, tmp_path)
    write_reports(plan, tmp_path)
    assert outputs(tmp_path) == outputs(finished[0])


def test_what_another_process_has_begun_is_left_to_it_until_the_end(finished, tmp_path):
    """Two processes share the work: one that waited for the other's run would only follow it."""
    plan = tiny("fig6")
    theirs = tmp_path / RUNS / plan.jobs[0].folder
    theirs.parent.mkdir(parents=True)
    other = FileLock(theirs.parent / f".{theirs.name}.lock")
    other.acquire()
    order = []

    def watch(progress):
        order.append(progress.number)
        if progress.number == len(plan.jobs):
            other.release()  # the other process dies before it has done anything

    carry_out(plan, tmp_path, on_progress=watch)
    assert list(dict.fromkeys(order)) == [*range(2, len(plan.jobs) + 1), 1]
    write_reports(plan, tmp_path)
    assert outputs(tmp_path) == outputs(finished[0])


def test_progress_goes_up_and_reaches_the_end(tmp_path):
    seen, done = [], []
    carry_out(tiny("fig6"), tmp_path, on_progress=seen.append, on_seed=done.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    assert seen[-1].left == pytest.approx(0.0)
    assert done == [1, 2]


def test_a_report_on_the_way_has_what_is_complete(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    plan = tiny("fig4", "fig6", seeds=3)
    verdicts = write_reports(plan, tmp_path)
    assert {(v.figure, len(v.values)) for v in verdicts} == {("fig6", 2)}
    text = (tmp_path / "results.md").read_text("utf-8")
    assert "Not finished: 2 of 3 seeds." in text
    assert text.count("Not finished.") == 1  # figure 4


def test_the_planner_is_asked_once_with_the_time_of_the_figure_and_its_choice_is_run():
    questions = []

    def ask(config, budget, effort, planned):
        questions.append((config, budget, effort.pilot, planned))
        return CHOICE

    plan = reproduction_of(["planner"], profile="quick", dataset="mnist-5k", settings=TINY, ask=ask)
    ((config, budget, pilot, planned),) = questions  # for three seeds
    assert (budget, pilot, planned) == (60 * 0.35, 500 * 0.35, ["schedule"])
    assert config.model.name == "logistic"  # what --set says holds for the planner too
    chosen = [job.config for job in plan.jobs if "planner's choice" in job.name]
    assert [config.settings.seed for config in chosen] == [0, 1, 2]
    for config in chosen:
        s = config.settings.schedule
        assert (s.tau1, s.tau2, s.alpha, config.settings.averager) == (10, 2, 3, "chebyshev")


def test_a_choice_is_kept_for_the_same_question_only(tmp_path):
    questions = []
    ask = kept(tmp_path, lambda *question: questions.append(question) or CHOICE)
    config, effort = run_config({}), Planning(pilot=10, racers=1, heats=1, iterations=100)
    question = (config, 60.0, effort, ["schedule"])
    assert ask(*question) == ask(*question) == CHOICE
    assert len(questions) == 1
    ask(config, 61.0, effort, ["schedule"])
    ask(config.changed(lr=Constant(0.5)), 60.0, effort, ["schedule"])
    ask(config, 60.0, effort, ["schedule", "codecs"])
    assert len(questions) == 4
    for path in tmp_path.glob("choice-*.json"):
        path.write_text('{"tau1": "damaged"}')
    assert ask(*question) == CHOICE
    assert len(questions) == 5


def test_the_page_says_what_the_planner_chose(tmp_path):
    plan = tiny("planner", seeds=1)
    carry_out(plan, tmp_path)
    write_reports(plan, tmp_path)
    for name in ("results.md", "index.html"):
        text = (tmp_path / name).read_text()
        assert "chose tau1 = 10, tau2 = 2, alpha = 3 and chebyshev out of 36 candidates" in text
        assert "Close race." in text


def test_every_planned_curve_of_a_figure_has_its_own_choice():
    """One choice for a figure was what all its planned curves once had."""
    budgets = {}

    def ask(config, budget, _, planned):
        both = "correction" in planned and "codecs" in planned
        budgets[tuple(planned), config.settings.profile] = budget
        also = {"codecs": {"up": "int8"}, "correction": "two-level"} if both else {}
        if "optimizer" in planned:
            also |= {"optimizer": {"name": "momentum", "momentum": 0.9}, "lr": 0.03}
        return CHOICE.model_copy(update=also)

    plan = reproduction_of(["methods"], seeds=1, ask=ask)
    # The planning's own, and not the 500 of the curves; less where levels come sooner.
    assert budgets.pop((("schedule", "codecs", "correction", "optimizer"), "paper")) == 60.0
    assert set(budgets.values()) == {200.0}
    assert len(budgets) + 1 == sum(bool(curve.planned) for curve in read_target("methods").curve)
    settings_of = {job.name: job.config.settings for job in plan.jobs}
    both = settings_of["methods: planner: schedule, codecs, correction, seed 0"]
    assert (both.codecs["up"], both.correction) == (CODECS["int8"](), Correction())
    down = settings_of["methods: downlink: planner: schedule, codecs, correction, seed 0"]
    assert (down.profile, down.correction) == ("paper-downlink", Correction())
    ruled = settings_of[
        "methods: planner: schedule, codecs, correction, local rule and rate, seed 0"
    ]
    assert (ruled.optimizer, ruled.lr) == (Momentum(0.9), Constant(0.03))
    plain = settings_of["methods: planner: schedule, seed 0"]
    assert (plain.optimizer, plain.lr) == (SGD(), Constant(0.01))
    assert plain.codecs["up"].exact
    assert plain.correction is None
    words = notes(plan.targets[0], plan)
    assert any(note.startswith("planner: schedule, codecs, correction: for 60 s") for note in words)
    assert any("chebyshev with int8 up, correction two-level, out of" in note for note in words)
    assert any("the optimizer momentum at a rate of 0.03, out of" in note for note in words)


@pytest.mark.parametrize("planned", [["codecs"], ["schedule", "colour"]])
def test_what_a_curve_plans_is_checked(planned):
    with pytest.raises(ValidationError, match=r"planned|schedule"):
        CurveSpec.model_validate({"label": "x", "planned": planned})


def test_the_planner_itself_answers_for_a_small_network():
    table = {
        "engine": "vectorised",
        "model": {"name": "logistic"},
        "data": {"name": "mnist-5k"},
        "network": {"servers": 3, "clients_per_server": 1},
    }
    effort = Planning(pilot=20, racers=2, heats=1, iterations=100)
    known = {}
    choice = choose(run_config(table), 3.0, effort, laboratories=known)
    assert choice.budget == 3.0
    assert choice.of > 6
    assert choice.trained > 20
    assert run_config({**table, **choice.settings()}).settings.averager == choice.averager
    also = choose(run_config(table), 3.0, effort, ["schedule", "codecs"], laboratories=known)
    assert len(known) == 1  # its pilot and probes are those of the first choice
    assert set(also.codecs) == {"up", "down", "between"}
    assert also.correction is None
    settings = run_config({**table, **also.settings()}).settings
    assert settings.codecs["up"] == CODECS[also.codecs["up"]]()
    ruled = choose(run_config(table), 3.0, effort, ["schedule", "optimizer"], laboratories=known)
    settings = run_config({**table, **ruled.settings()}).settings
    named = OPTIMIZERS[ruled.optimizer["name"]]()
    assert (settings.optimizer, settings.lr) == (named, Constant(ruled.lr))
    assert (ruled.codecs, ruled.correction) == ({}, None)
    alone = choose(run_config(table), 3.0, effort, ["schedule", "codecs"])
    assert alone == also  # sharing runs changes no answer
