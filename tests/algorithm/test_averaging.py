"""Averaging rules: equal to their definitions, and what a poisoner does to each."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfeel.algorithm.methods.averaging import PERIODS, RULES, Rule, scales
from sdfeel.errors import InputError

N, SIZE = 5, 7
PERIOD = SimpleNamespace(length=0.1)  # all that a rule asks of its period


def average(models: np.ndarray, shares: np.ndarray, held: np.ndarray, rule: Rule) -> np.ndarray:
    """What a new server makes of these models; no rule asks what else there is to know."""
    return rule.combine(models, shares, held, new_rows(rule), PERIOD)  # type: ignore[arg-type]


def new_rows(rule: Rule) -> dict[str, np.ndarray]:
    return {name: np.full(row.width, row.first) for name, row in rule.rows.items()}


def models_and_weights(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    samples = rng.integers(5, 50, N)
    return rng.normal(size=(N, SIZE)), samples / samples.sum(), rng.normal(size=SIZE)


def test_mean_is_the_weighted_mean() -> None:
    models, weights, centre = models_and_weights()
    assert np.allclose(average(models, weights, centre, Rule("mean")), weights @ models)


def test_clip_with_a_wide_limit_is_the_mean_and_with_a_narrow_one_stays_near_the_start() -> None:
    models, weights, centre = models_and_weights()
    wide = average(models, weights, centre, Rule("clip", limit=1e6))
    assert np.allclose(wide, weights @ models)
    narrow = average(models, weights, centre, Rule("clip", limit=0.1))
    assert np.linalg.norm(narrow - centre) <= 0.1 + 1e-12


def test_trimmed_leaves_out_both_ends() -> None:
    models = np.array([[0.0], [1.0], [2.0], [3.0], [1000.0]])
    equal = np.full(5, 0.2)
    assert average(models, equal, np.zeros(1), Rule("trimmed", trim=0.2)) == pytest.approx(2.0)


@pytest.mark.parametrize(("count", "cut"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (10, 2)])
def test_trimmed_leaves_somebody_out_as_soon_as_it_can(count: int, cut: int) -> None:
    """A share of 0.2 of four is less than one; a poisoner must not be let in for that."""
    models = np.arange(count, dtype=float)[:, None]
    models[-1] = 1e9
    found = average(models, np.full(count, 1 / count), np.zeros(1), Rule("trimmed", trim=0.2))
    assert found == pytest.approx(models[cut : count - cut].mean())
    none = average(models, np.full(count, 1 / count), np.zeros(1), Rule("trimmed", trim=0.0))
    assert none == pytest.approx(models.mean())


def test_weighted_median_counts_weights_and_halves_a_tie() -> None:
    models = np.array([[0.0], [1.0], [5.0]])
    assert average(models, np.array([0.2, 0.2, 0.6]), np.zeros(1), Rule("median")) == 5.0
    tie = np.array([[0.0], [4.0]])
    assert average(tie, np.array([0.5, 0.5]), np.zeros(1), Rule("median")) == 2.0


@given(seed=st.integers(0, 1000), name=st.sampled_from(RULES))
def test_every_rule_keeps_agreement_and_ignores_the_order_of_clients(seed: int, name: str) -> None:
    models, weights, centre = models_and_weights(seed)
    rule = Rule(name, limit=2.0)  # type: ignore[arg-type]
    same = np.broadcast_to(models[0], (N, SIZE))
    if name not in ("clip", "history-clip"):
        assert np.allclose(average(same, weights, centre, rule), models[0])
    order = np.random.default_rng(seed).permutation(N)
    assert np.allclose(
        average(models[order], weights[order], centre, rule), average(models, weights, centre, rule)
    )


def descend(rule: Rule, poisoned: bool) -> float:
    """Distance from the optimum after 100 rounds of a quadratic problem with one of five bad."""
    goal, model = np.ones(SIZE), np.zeros(SIZE)
    rng = np.random.default_rng(1)
    weights, rows = np.full(N, 1 / N), new_rows(rule)
    for _ in range(100):
        uploads = np.stack([model - 0.2 * (model - goal) for _ in range(N)])
        uploads += rng.normal(scale=1e-3, size=uploads.shape)
        if poisoned:
            uploads[0] = -100.0
        model = rule.combine(uploads, weights, model, rows, PERIOD)  # type: ignore[arg-type]
    return float(np.linalg.norm(model - goal))


def test_a_poisoner_spoils_the_mean() -> None:
    assert descend(Rule("mean"), poisoned=False) < 0.05
    assert descend(Rule("mean"), poisoned=True) > 10


@pytest.mark.parametrize(
    ("rule", "bound"),
    [
        (Rule("clip", limit=0.1), 0.4),
        (Rule("trimmed"), 0.05),
        (Rule("median"), 0.05),
        (Rule("history-clip"), 0.05),
    ],
    ids=["clip", "trimmed", "median", "history-clip"],
)
def test_a_poisoner_does_not_spoil_a_robust_rule(rule: Rule, bound: float) -> None:
    assert descend(rule, poisoned=True) < bound


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": "medain"}, "median"),
        ({"limit": 0.0}, "averaging_rule.limit"),
        ({"trim": 0.5}, "averaging_rule.trim"),
        ({"factor": 0.0}, "averaging_rule.factor"),
    ],
)
def test_bad_parameters_are_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Rule(**fields)  # type: ignore[arg-type]


@given(seed=st.integers(0, 1000), name=st.sampled_from(RULES), cut=st.integers(1, SIZE - 1))
def test_a_rule_on_blocks_is_the_rule_on_the_whole(seed: int, name: str, cut: int) -> None:
    """As an edge server applies it to models that do not fit into memory together."""
    models, shares, held = models_and_weights(seed)
    rule = Rule(name, limit=2.0)  # type: ignore[arg-type]
    norms = np.linalg.norm(models - held, axis=1)
    counted = scales(norms, rule.take_limit(norms, new_rows(rule), PERIOD.length))
    parts = [
        rule.on_block(models[:, part], shares, held[part], counted)
        for part in (slice(cut), slice(cut, None))
    ]
    np.testing.assert_allclose(np.concatenate(parts), average(models, shares, held, rule))


# The rule `history-clip`.


@pytest.mark.parametrize("times", [-10.0, -90.0])
@pytest.mark.parametrize("count", [3, 5, 20])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_liar_moves_the_model_by_its_share_of_the_limit(
    count: int, times: float, factor: float
) -> None:
    """In every period; and r is never above what an honest client moved."""
    rule, rng = Rule("history-clip", factor=factor), np.random.default_rng(count)
    rows, model = new_rows(rule), np.zeros(SIZE)
    shares = rng.integers(5, 50, count) / 1.0
    shares /= shares.sum()
    longest = 0.0
    for _ in range(3 * PERIODS):
        honest = rng.normal(size=(count, SIZE)) + 1.0
        longest = max(longest, np.linalg.norm(honest[1:], axis=1).max())
        moves = honest.copy()
        moves[0] *= times
        limit = rule.take_limit(
            np.linalg.norm(moves, axis=1), new := {"norms": rows["norms"] + 0}, PERIOD.length
        )
        assert limit <= factor * longest
        after = average_of(rule, model + moves, shares, model, rows)
        np.testing.assert_allclose(rows["norms"], new["norms"], rtol=1e-9)
        moves[0] = 0
        without = model + (shares * scales(np.linalg.norm(moves, axis=1), limit)) @ moves
        assert np.linalg.norm(after - without) <= shares[0] * limit * (1 + 1e-9)
        model = after


def average_of(
    rule: Rule,
    models: np.ndarray,
    shares: np.ndarray,
    held: np.ndarray,
    rows: dict[str, np.ndarray],
) -> np.ndarray:
    return rule.combine(models, shares, held, rows, PERIOD)  # type: ignore[arg-type]


def test_honest_clients_move_the_model_where_their_mean_does() -> None:
    rule, rng = Rule("history-clip"), np.random.default_rng(0)
    rows, shares = new_rows(rule), np.full(N, 1 / N)
    for _ in range(2 * PERIODS):
        moves = rng.normal(size=(N, SIZE)) + 2.0
        moved, mean = average_of(rule, moves, shares, np.zeros(SIZE), rows), moves.mean(0)
        assert moved @ mean > 0.95 * np.linalg.norm(moved) * np.linalg.norm(mean)
        assert np.linalg.norm(moved) > 0.5 * np.linalg.norm(mean)


def test_the_history_takes_in_at_most_the_limit_in_force() -> None:
    rule, rows = Rule("history-clip", factor=2.0), new_rows(Rule("history-clip"))
    assert rule.take_limit(np.array([1.0, 2.0, 900.0]), rows, 1.0) == 4.0  # its own median, 2
    assert rule.take_limit(np.array([800.0, 700.0, 900.0]), rows, 1.0) == 4.0
    assert rows["norms"][-3:].tolist() == [0.0, 2.0, 2.0]
    assert rule.take_limit(np.array([1.0, 1.0, 900.0]), rows, 1.0) == 4.0
    assert rule.take_limit(np.zeros(3), rows, 1.0) == 4.0, "nobody moved: nothing is learned of it"
    assert rows["norms"][-4:].tolist() == [0.0, 2.0, 2.0, 1.0]
    for _ in range(PERIODS):
        rule.take_limit(np.ones(3), rows, 1.0)
    assert rule.take_limit(np.ones(3), rows, 1.0) == 2.0, "what is older is forgotten"


@pytest.mark.parametrize(("count", "is_held"), [(1, False), (2, False), (3, True)])
def test_one_liar_of_fewer_than_three_is_not_held(count: int, is_held: bool) -> None:
    moves = np.ones((count, SIZE))
    moves[0] *= -90
    found = average(moves, np.full(count, 1 / count), np.zeros(SIZE), Rule("history-clip"))
    assert (np.linalg.norm(found) <= np.linalg.norm(np.ones(SIZE))) == is_held


def test_a_rate_that_rises_or_falls_does_not_change_what_is_clipped() -> None:
    """Honest moves are in proportion to the rate; so is what counts in full."""
    rule, rows = Rule("history-clip"), new_rows(Rule("history-clip"))
    moves = np.array([0.5, 1.0, 80.0])
    for rate in (1e-3, 0.1, 1.0, 0.0, 0.3):
        assert rule.take_limit(rate * moves, rows, rate) == pytest.approx(rate)


@pytest.mark.parametrize("few", [1, 2])
def test_a_period_with_few_clients_is_clipped_and_teaches_nothing(few: int) -> None:
    """Else the one client that is there first could hold the others back for good."""
    rule, rows = Rule("history-clip"), new_rows(Rule("history-clip"))
    assert rule.take_limit(np.full(few, 1e-9), rows, 1.0) == 1e-9
    assert rule.take_limit(np.array([1.0, 2.0, 3.0]), rows, 1.0) == 2.0
    assert rule.take_limit(np.full(few, 1e-9), rows, 1.0) == 2.0
    assert rule.take_limit(np.full(few, 900.0), rows, 1.0) == 2.0
    assert np.count_nonzero(rows["norms"]) == 1
