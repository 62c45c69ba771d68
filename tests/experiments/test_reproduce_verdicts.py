"""Verdicts on made-up curves: some must pass, some must fail, some must leave it open."""

import math

import numpy as np
import pandas as pd
import pytest

from sdfeel.experiments.reproduce.document import verdict_rows
from sdfeel.experiments.reproduce.measures import (
    level,
    level_noise,
    noise,
    shared_stretch,
    time_ratio,
)
from sdfeel.experiments.reproduce.spec import Claim
from sdfeel.experiments.reproduce.verdicts import Finding, decide, judge
from sdfeel.records.curves import Curve

ITERATIONS = np.arange(0, 1001, 40)


def falling(floor, *, speed=1.0, wobble=0.0, seed=0):
    """A loss that falls from 2.3 to `floor`, one second an iteration / speed."""
    x = ITERATIONS / speed
    y = floor + (2.3 - floor) * np.exp(-ITERATIONS / 200)
    y = y + wobble * np.random.default_rng(seed).standard_normal(len(y))
    accuracy = 1 - y / 2.6
    table = {"iteration": ITERATIONS, "seconds": x, "train_loss": y, "test_accuracy": accuracy}
    return pd.DataFrame(table)


def claim(kind, *curves, x="iteration", y="train_loss", **more):
    return Claim(name="c", says="s", kind=kind, curves=list(curves), x=x, y=y, **more)


def outcome(of, **runs):
    return judge("fig", of, runs).verdict


def seeds(*floors, **options):
    return [falling(floor, seed=n, **options) for n, floor in enumerate(floors)]


def test_an_order_that_every_seed_shows_passes_and_its_reverse_fails():
    runs = {"a": seeds(1.0, 1.1, 0.9), "b": seeds(1.2, 1.25, 1.15), "c": seeds(1.5, 1.6, 1.4)}
    assert outcome(claim("order", "a", "b", "c"), **runs) == "confirmed"
    assert outcome(claim("order", "c", "b", "a"), **runs) == "not confirmed"
    assert outcome(claim("order", "a", "b", "c", y="test_accuracy"), **runs) == "confirmed"


def test_the_weakest_link_of_an_order_decides():
    runs = {"a": seeds(1.0, 1.0, 1.0), "b": seeds(1.5, 1.5, 1.5), "c": seeds(1.4, 1.4, 1.4)}
    assert outcome(claim("order", "a", "b", "c"), **runs) == "not confirmed"
    assert outcome(claim("best", "a", "b", "c"), **runs) == "confirmed"
    assert outcome(claim("best", "b", "a", "c"), **runs) == "not confirmed"


def test_seeds_that_contradict_each_other_leave_it_open():
    runs = {"a": seeds(1.0, 1.3, 1.0), "b": seeds(1.1, 1.1, 1.3)}
    verdict = judge("fig", claim("order", "a", "b"), runs)
    assert verdict.verdict == "open"
    assert verdict.note == "2 of 3 seeds agree"
    assert verdict.spread[0] < 0 < verdict.spread[1]
    assert verdict.interval[0] < 0 < verdict.interval[1]


def test_differences_are_paired_by_seed():
    # Seeds differ by far more than the curves of one seed do.
    runs = {"a": seeds(0.5, 1.0, 1.5), "b": seeds(0.52, 1.02, 1.52)}
    assert outcome(claim("order", "a", "b"), **runs) == "confirmed"


def test_one_seed_must_exceed_the_noise_of_its_own_curves():
    clear = {"a": seeds(1.0, wobble=0.01), "b": seeds(1.3, wobble=0.01)}
    hidden = {"a": seeds(1.0, wobble=0.1), "b": [falling(1.01, wobble=0.1, seed=5)]}
    verdict = judge("fig", claim("order", "a", "b"), clear)
    assert verdict.verdict == "confirmed"
    assert verdict.spread is None
    assert verdict.interval is None
    assert "one seed" in verdict.note
    assert outcome(claim("order", "b", "a"), **clear) == "not confirmed"
    assert outcome(claim("order", "a", "b"), **hidden) == "open"


def test_curves_that_coincide_are_no_order():
    same = {"a": seeds(1.0, 1.1, 1.2), "b": seeds(1.0, 1.1, 1.2)}
    verdict = judge("fig", claim("order", "a", "b"), same)
    assert (verdict.verdict, verdict.note) == ("not confirmed", "the curves coincide")
    assert outcome(claim("within", "a", "b", threshold=0.001), **same) == "confirmed"


def test_a_threshold_says_how_much_much_is():
    runs = {"a": seeds(1.0, 1.0, 1.0), "b": seeds(1.05, 1.06, 1.07)}
    assert outcome(claim("order", "a", "b", threshold=0.02), **runs) == "confirmed"
    assert outcome(claim("order", "a", "b", threshold=0.2), **runs) == "not confirmed"
    assert outcome(claim("within", "a", "b", threshold=0.2), **runs) == "confirmed"
    assert outcome(claim("within", "a", "b", threshold=0.01), **runs) == "not confirmed"
    assert outcome(claim("within", "a", "b", threshold=0.058), **runs) == "open"


def test_behind_is_a_ratio_of_times():
    runs = {"a": seeds(1.0, 1.0), "b": seeds(1.0, 1.0, speed=0.25)}
    far = claim("behind", "a", "b", x="seconds", threshold=2.0)
    verdict = judge("fig", far, runs)
    assert verdict.verdict == "confirmed"
    assert verdict.value == pytest.approx(4.0, rel=0.1)
    assert outcome(claim("behind", "b", "a", x="seconds", threshold=2.0), **runs) == "not confirmed"
    assert outcome(claim("behind", "a", "a", x="seconds", threshold=2.0), **runs) == "not confirmed"


def test_rougher_compares_noise_and_not_trend():
    runs = {"steep": seeds(0.2, 0.2, wobble=0.01), "rough": seeds(1.5, 1.5, wobble=0.1)}
    assert outcome(claim("rougher", "rough", "steep", threshold=2.0), **runs) == "confirmed"
    assert outcome(claim("rougher", "steep", "rough", threshold=2.0), **runs) == "not confirmed"


def test_falls_wants_the_end_below_the_middle():
    rising = falling(1.0)
    rising["train_loss"] = rising["train_loss"].to_numpy()[::-1]
    runs = {"a": seeds(1.0, 1.0), "b": [rising, rising]}
    assert outcome(claim("falls", "a"), **runs) == "confirmed"
    assert outcome(claim("falls", "a", "b"), **runs) == "not confirmed"


def test_what_was_not_recorded_is_not_judged():
    runs = {"a": seeds(1.0, 1.0), "b": [f.drop(columns="train_loss") for f in seeds(1.5, 1.5)]}
    verdict = judge("fig", claim("order", "a", "b"), runs)
    assert verdict.verdict == "open"
    assert verdict.value is None
    assert judge("fig", claim("order", "a", "z"), runs).verdict == "open"


@pytest.mark.parametrize(
    ("margins", "expected"),
    [
        ([0.1, 0.2, 0.3], "confirmed"),
        ([-0.1, -0.2, -0.3], "not confirmed"),
        ([-0.1, 0.2, 0.3], "open"),
        # One small contradiction among many: the interval decides.
        ([-0.01, 1.0, 1.1, 0.9, 1.0, 1.2], "confirmed"),
        ([0.01, -1.0, -1.1, -0.9, -1.0, -1.2], "not confirmed"),
        ([], "open"),
        ([0.1, math.nan], "open"),
    ],
)
def test_decide(margins, expected):
    assert decide([Finding(m, m, 0.0) for m in margins])[0] == expected


def test_measures_by_hand():
    line = Curve(np.array([0.0, 10.0]), np.array([1.0, 0.0]), is_falling=True)
    assert level(line, 10.0) == pytest.approx(0.1)
    assert level(line, 10.0, (0.0, 1.0)) == pytest.approx(0.5)
    assert level(line, 5.0) == pytest.approx(0.55)
    assert shared_stretch([line, Curve(np.array([0.0, 4.0]), np.zeros(2), is_falling=True)]) == 4.0
    assert math.isnan(noise(line))
    slow = Curve(np.array([0.0, 10.0]), np.array([1.0, 0.5]), is_falling=True)
    assert time_ratio(line, slow) == pytest.approx(2.0, rel=1e-2)
    assert time_ratio(slow, line) == pytest.approx(0.5, rel=1e-1)


def test_noise_is_that_of_one_evaluation_whatever_the_trend():
    x = np.arange(4000.0)
    wobble = np.random.default_rng(1).normal(0, 0.3, len(x))
    curve = Curve(x, 5 - x / 1000 + wobble, is_falling=True)
    assert noise(curve) == pytest.approx(0.3, rel=0.05)
    assert level_noise(curve, 3999.0) == pytest.approx(0.3 / math.sqrt(800), rel=0.06)


def test_sooner_is_a_ratio_of_times_to_a_level():
    """At equal floors the curves differ by speed alone; a loss and an accuracy say the same."""
    runs = {"a": seeds(1.0, 1.0), "b": seeds(1.0, 1.0, speed=0.25), "high": seeds(1.8, 1.8)}
    for y, goal in (("train_loss", 1.3), ("test_accuracy", 0.5)):
        far = claim("sooner", "a", "b", x="seconds", y=y, threshold=3.0, level=goal)
        verdict = judge("fig", far, runs)
        assert verdict.verdict == "confirmed"
        assert verdict.value == pytest.approx(4.0, rel=0.05)
        assert verdict.unit == "ratio"
        more = claim("sooner", "a", "b", x="seconds", y=y, threshold=5.0, level=goal)
        assert outcome(more, **runs) == "not confirmed"


def test_sooner_where_one_never_arrives():
    """Its whole length counts for the second; without the first there is nothing to say."""
    runs = {"a": seeds(1.0, 1.0), "high": seeds(1.8, 1.8)}
    verdict = judge("fig", claim("sooner", "a", "high", threshold=2.0, level=1.3), runs)
    assert verdict.value == pytest.approx(1000 / (200 * math.log(1.3 / 0.3)), rel=0.05)
    assert outcome(claim("sooner", "high", "a", threshold=2.0, level=1.3), **runs) == "open"
    # That the second takes 3.4 times as long or longer neither confirms nor refutes five times.
    assert outcome(claim("sooner", "a", "high", threshold=5.0, level=1.3), **runs) == "open"


@pytest.mark.parametrize(
    ("arrive", "spread", "note"),
    [
        (0, False, "not enough was recorded"),
        (1, False, "not enough was recorded on 2 of 3 seeds"),
        (2, True, "not enough was recorded on 1 of 3 seeds"),
    ],
)
def test_seeds_that_never_arrive_have_no_part_in_numbers(arrive, spread, note):
    """The least and the most are of what was measured; a seed without is named."""
    runs = {"a": seeds(*[1.0] * arrive, *[2.0] * (3 - arrive)), "b": seeds(1.1, 1.1, 1.1)}
    verdict = judge("fig", claim("sooner", "a", "b", threshold=2.0, level=1.3), runs)
    assert (verdict.verdict, verdict.note) == ("open", note)
    assert (verdict.value is not None) == (arrive > 0)
    assert (verdict.spread is not None) == spread
    assert "nan" not in verdict_rows([verdict])[0]["measured"]


def test_a_level_goes_with_sooner_and_with_nothing_else():
    for kind, goal in (("sooner", None), ("behind", 1.0)):
        with pytest.raises(ValueError, match="level"):
            claim(kind, "a", "b", level=goal)


def test_what_is_kept_may_be_better_and_worse_by_a_part_of_it_only():
    runs = {"a": seeds(1.0, 1.1, 0.9), "better": seeds(0.8, 0.9, 0.7)}
    runs["worse"] = seeds(1.01, 1.11, 0.91)
    assert outcome(claim("keeps", "better", "a", threshold=0.02), **runs) == "confirmed"
    assert outcome(claim("keeps", "worse", "a", threshold=0.02), **runs) == "confirmed"
    assert outcome(claim("keeps", "worse", "a", threshold=0.001), **runs) == "not confirmed"
    assert outcome(claim("keeps", "a", "better", threshold=0.1), **runs) == "not confirmed"
    accurate = claim("keeps", "a", "better", y="test_accuracy", threshold=0.02)
    assert outcome(accurate, **runs) == "not confirmed"
    value = judge("fig", claim("keeps", "worse", "a", threshold=0.02), runs).value
    assert 0.005 < value < 0.02


def test_a_limit_holds_everywhere_and_not_only_at_the_end():
    never = [falling(1.0).assign(idle_share=0.0) for _ in range(3)]
    once = [frame.assign(idle_share=frame["iteration"] == 40) for frame in never]
    limit = claim("most", "a", y="idle_share", threshold=1e-9)
    assert outcome(limit, a=never) == "confirmed"
    assert outcome(limit, a=once) == "not confirmed"
    assert outcome(limit, a=never[:1]) == "confirmed"
