"""`sdfeel.compare`: several schemes or settings on the same data, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import pandas as pd
from torch import nn

from sdfeel import api
from sdfeel.algorithm.schemes import Scheme
from sdfeel.algorithm.trainer import Trainer
from sdfeel.callbacks import Callback, check_callbacks
from sdfeel.engines.problem import Loss
from sdfeel.errors import InputError, located, warned_once
from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.jobs import Job, JobProgress, Run, Started, run_all, run_from, slug
from sdfeel.experiments.run import simulation_of
from sdfeel.files import check_writable
from sdfeel.network import Network
from sdfeel.records.comparison import COMPARISON, read_runs
from sdfeel.records.folder import environment
from sdfeel.records.reading import RunRecord, read_run
from sdfeel.reports.bands import BandKind, band
from sdfeel.reports.comparison import Written, write_comparison
from sdfeel.reports.rendering import column_headings
from sdfeel.reports.tables import all_evaluations, compare_table
from sdfeel.simulation import loading
from sdfeel.simulation.arguments import RunSettings
from sdfeel.simulation.evaluation import Metric
from sdfeel.simulation.listening import Progress
from sdfeel.simulation.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = ("sd-feel", "hierfavg", "fedavg", "feel")
EXAMPLE = '["sd-feel", "fedavg"] or {"often": {"schedule": Schedule(1, 1, 5)}}'
# Arguments of `train` that say where and how a run is carried out: `compare` has its own.
NOT_HERE = ("out", "resume", "config", "on_start", "on_progress")
Variant = Mapping[str, Any] | str | Scheme


class Common(RunSettings, total=False):
    """Arguments of `sdfeel.train` that the runs of a comparison have in common."""

    loss: Loss | None
    metrics: Mapping[str, Metric] | None
    test: Any
    partition: str | Sequence[Any] | None
    trainers: Sequence[Trainer] | None
    clients: int | None
    rounds: int | None
    initial: Any
    samples: Sequence[int] | None
    callbacks: Sequence[Callback]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several runs side by side, as `sdfeel.compare` returns them.

    records  by label, one for each seed: settings and metrics
    results  the same with models; empty if it was loaded without a model
    table    a pandas DataFrame, a row for each label: how it ended, and simulated seconds to some
             accuracies
    curves   all evaluations in one DataFrame, with columns `label` and `seed`

    >>> both = sdfeel.compare(model, data, ["sd-feel", "local"], network=network, steps=4)
    >>> list(both.table.index)
    ['sd-feel', 'local']
    """

    records: Mapping[str, Sequence[RunRecord]]
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)
    title: str = ""

    def __repr__(self) -> str:
        table = self.table.rename(columns=column_headings(self.table.columns))
        return f"{self.title or 'Comparison'}\n{table.to_string()}"

    @cached_property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(compare_table(self.records)).set_index("label")

    @cached_property
    def curves(self) -> pd.DataFrame:
        return all_evaluations(self.records, "label")

    def band(
        self, column: str = "train_loss", x: str = "seconds", kind: BandKind = "range"
    ) -> pd.DataFrame:
        """Return median and band over the seeds of each label, at every x.

        Args:
            column: what the band is of.
            x: "seconds" (simulated) or "iteration".
            kind: what lies between low and high: "range", or "quartiles".

        Returns:
            A table with columns label, x, middle (the median), low and high.
        """
        parts = []
        for label, of in self.records.items():
            lines = band([record.metrics for record in of], x, column, kind)
            if lines is not None:
                edges = {name: getattr(lines, name) for name in ("middle", "low", "high")}
                parts.append(pd.DataFrame({"label": label, x: lines.x} | edges))
        if not parts:
            known = ", ".join(str(name) for name in self.curves.columns[2:])
            raise InputError("column", column, f"no run has it; known: {known}")
        return pd.concat(parts, ignore_index=True)

    def plot(
        self,
        path: str | Path | None = None,
        *,
        x: str = "seconds",
        spread: BandKind = "range",
        until: float | None = None,
    ) -> Figure:
        """Draw loss and metrics of all, medians with bands.

        Args:
            path: where to write it too: "c.pdf" alone, "c.png" and "c.svg" beside each other.
            x: "seconds" (simulated) or "iteration".
            spread: what a band spans: "range" or "quartiles".
            until: where the x axis ends.
        """
        from sdfeel.reports.figures import figure_of_metrics, save_figure  # takes a while

        frames = {label: [record.metrics for record in of] for label, of in self.records.items()}
        title = self.title or None
        figure = figure_of_metrics(frames, title=title, spread=spread, until=until, x=x)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def save(self, folder: str | Path) -> Written:
        """Write every run in a folder of its own, figure, table and page, as `sdfeel compare` does.

        `sdfeel watch` and `sdfeel plot` show it, `sdfeel.load` gives it back.
        """
        target = Path(folder)
        if not self.results:
            raise InputError("folder", str(folder), "was loaded without a model: nothing to save")
        if (target / COMPARISON).exists():
            raise InputError("folder", str(folder), "holds a comparison already: name another one")
        check_writable(target)
        records = {
            label: [
                read_run(result.save(target / slug(_name(label, result.config.get("seed"), of))))
                for result in of
            ]
            for label, of in self.results.items()
        }
        return write_comparison(target, records, title=self.title)

    def _repr_html_(self) -> str:
        from sdfeel.reports.notebook import shown

        return shown(self.table.reset_index(), self.plot())


def compare(
    model: nn.Module | None = None,
    client_datasets: Any = None,
    variants: Mapping[str, Variant] | Sequence[Variant] | None = None,
    *,
    network: Network | None = None,
    seeds: int | Sequence[int] = 1,
    title: str = "",
    out: str | Path | None = None,
    on_start: Started | None = None,
    on_progress: Callable[[str, Progress], None] | None = None,
    **common: Unpack[Common],
) -> Comparison:
    """Train by several schemes or settings, and put them side by side over simulated time.

    Everything is checked before anything is trained.

    Args:
        model: any nn.Module: where every run starts.
        client_datasets: as for `sdfeel.train`.
        variants: what differs: schemes, `["sd-feel", "fedavg"]`; or by label what to change of
            `common`, `{"often": {"schedule": Schedule(1, 1, 5)}, "rare": {...}}`. Any argument of
            `sdfeel.train` may be changed, the network too. By default sd-feel, hierfavg, fedavg and
            feel.
        network: clusters and graph.
        seeds: how many, 0 to N-1, or which; 1 leaves the seed as it is set. Curves of several seeds
            get a band.
        title: of figure and page.
        out: folder that keeps every run as it goes, in a folder of its own. The same call goes on
            with what was stopped, and does not do again what is done; made by two processes at
            once, they share the runs.
        on_start: called with the engine's name and why it is this one.
        on_progress: called with a run's name and its `Progress` after every upload period.
        common: arguments of `sdfeel.train` that all variants share: lr, test, and how long a run
            is. That is `until=`, simulated seconds, or `steps=`, iterations: one of them is needed.

    Returns:
        Tables, curves and results, and `plot` draws them: a `Comparison`.

    Raises:
        InputError: something that was given cannot be right; nothing is trained.

    Example:
        >>> import numpy as np, sdfeel, torch
        >>> rng = np.random.default_rng(0)
        >>> data = [(rng.normal(size=(20, 4)), rng.integers(0, 2, 20)) for _ in range(6)]
        >>> both = sdfeel.compare(
        ...     torch.nn.Linear(4, 2).double(), data, ["sd-feel", "fedavg"], steps=20,
        ...     network=sdfeel.Network.ring(servers=3, clients_per_server=2),
        ... )
        >>> list(both.table.index)
        ['sd-feel', 'fedavg']
    """
    given = {"model": model, "client_datasets": client_datasets, "network": network, **common}
    contenders = {
        label: _contender({**given, **change}, seeds)
        for label, change in _variants(variants).items()
    }
    comparison = carry_out(
        contenders,
        _seeds(seeds),
        None if out is None else Path(out),
        title=title,
        on_start=on_start or (lambda *_: None),
        on_progress=lambda progress: on_progress and on_progress(progress.job.name, progress.run),
    )
    if out is not None:
        write_comparison(out, comparison.records, title=title)
    return comparison


class Contender(NamedTuple):
    """A curve of a comparison.

    check   names every mistake
    seeded  makes the run of a seed; None leaves the seed as it is set
    """

    check: Callable[[], object]
    seeded: Callable[[int | None], Run]


def from_config(config: RunConfig) -> Contender:
    """Make a contender of what a TOML table describes."""
    return Contender(
        partial(simulation_of, config),
        lambda seed: partial(run_from, config if seed is None else config.changed(seed=seed)),
    )


@warned_once()
def carry_out(
    contenders: Mapping[str, Contender],
    seeds: Sequence[int | None],
    out: Path | None,
    *,
    title: str = "",
    on_start: Started = lambda *_: None,
    on_progress: Callable[[JobProgress], None] = lambda _: None,
) -> Comparison:
    """Carry out every contender with every seed; all are checked before the first is trained."""
    names = {(label, seed): _name(label, seed, seeds) for label in contenders for seed in seeds}
    name_of: dict[str, str] = {}
    for name in names.values():
        other = name_of.setdefault(slug(name), name)
        if other != name:
            remedy = f"would have the same folder as {other!r}: {slug(name)}"
            raise InputError("variant.label", name, remedy)
    for label, contender in contenders.items():
        with located(f"variant {label}: "):
            contender.check()
    jobs = [
        Job(name, slug(name), contenders[label].seeded(seed))
        for (label, seed), name in names.items()
    ]
    finished = run_all(jobs, out, on_start=on_start, on_progress=on_progress)
    records: dict[str, list[RunRecord]] = {label: [] for label in contenders}
    results: dict[str, list[Result]] = {label: [] for label in contenders}
    for (label, _), job, result in zip(names, jobs, finished, strict=True):
        results[label] += [] if result is None else [result]
        records[label].append(_record(Path(job.folder), out, result))
    return Comparison(records, results, title)


def load(folder: str | Path, model: nn.Module | None = None) -> Any:
    """Load what a folder keeps: the `Result` of a run that ended, or a `Comparison`.

    Args:
        folder: that of `out=`, `--out`, `Result.save` or `Comparison.save`.
        model: the network that was trained, with any weights: a folder holds weights, not code. A
            run of `sdfeel run` with a model of ours needs none, and a comparison has its curves and
            table without.

    >>> folder = sdfeel.train(model, data, network=network, steps=4).save("runs/mine")
    >>> sdfeel.load("runs/mine", model).iterations
    4
    """
    if not isinstance(folder, str | Path):
        raise InputError("folder", folder, "the path of a folder, as `out=` had it")
    if not (Path(folder) / COMPARISON).is_file():
        return loading.load(folder, model)
    title, records = read_runs(folder)
    results: dict[str, list[Result]] = {}
    if model is not None:
        results = {
            label: [loading.load(record.path, model) for record in of]
            for label, of in records.items()
        }
    return Comparison(records, results, title)


def _contender(arguments: Mapping[str, Any], seeds: int | Sequence[int]) -> Contender:
    """Make a contender of arguments of `train`."""
    if "seed" in arguments and seeds != 1:
        remedy = f"beside seeds = {seeds}: leave one of them out"
        raise InputError("seed", arguments["seed"], remedy)
    for name in NOT_HERE:
        if name in arguments:
            remedy = "is said once for all, as an argument of compare"
            if name == "resume":
                remedy = "the same call goes on with what was stopped in out="
            raise InputError(name, arguments[name], remedy)

    def check() -> None:
        rest = dict(arguments)
        check_callbacks(rest.pop("callbacks", ()))
        if not isinstance(rest.get("network"), Network):
            remedy = "a sdfeel.Network: Network.ring(10, 5)"
            raise InputError("network", rest.get("network"), remedy)
        simulation, trainers = api.assembled(**rest)
        if trainers is not None:
            simulation.engine_of(trainers).engine.close()

    def seeded(seed: int | None) -> Run:
        seeds = {} if seed is None else {"seed": seed}
        return lambda out, on_start, on_progress: api.train(
            **{**arguments, **seeds},
            out=out,
            resume=out is not None,
            on_start=on_start,
            on_progress=on_progress,
        )

    return Contender(check, seeded)


def _variants(given: Any) -> dict[str, Mapping[str, Any]]:
    """Return what changes, by label."""
    given = USUAL if given is None else given
    if isinstance(given, Mapping):
        changes = [{"label": label, **_change(label, of)} for label, of in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        changes = [_change(f"variants[{number}]", of) for number, of in enumerate(given)]
    else:
        raise InputError("variants", given, f"schemes, or what differs by label: {EXAMPLE}")
    variants: dict[str, Mapping[str, Any]] = {}
    for number, change in enumerate(changes):
        scheme = change.get("scheme")
        label = change.pop("label", scheme.name if isinstance(scheme, Scheme) else scheme)
        if not isinstance(label, str) or not label:
            raise InputError(f"variants[{number}]", label, "needs a label of its own")
        if label in variants:
            raise InputError("variant.label", label, "each variant needs its own label")
        variants[label] = change
    if not variants:
        raise InputError("variants", given, f"at least one: {EXAMPLE}")
    return variants


def _change(where: str, given: Any) -> dict[str, Any]:
    if isinstance(given, str | Scheme):
        return {"scheme": given}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(where, given, "a scheme, or a dict of arguments of sdfeel.train")
    return dict(given)


def _seeds(given: Any) -> list[int | None]:
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    numbers = list(given) if is_list else [given]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise InputError("seeds", given, "how many, or a list of whole numbers")
    if not numbers or given == 0 or len(set(numbers)) < len(numbers):
        raise InputError("seeds", given, "at least one, each once")
    if is_list:
        return numbers
    return [None] if given == 1 else list(range(given))


def _name(label: str, seed: object, seeds: Sequence[Any]) -> str:
    """Name a run among those of its label."""
    return label if len(seeds) == 1 else f"{label}, seed {seed}"


def _record(folder: Path, out: Path | None, result: Result | None) -> RunRecord:
    if out is not None:
        return read_run(out / folder)
    assert result is not None  # noqa: S101 - only what a folder holds is not carried out
    known = environment(result.config.get("seed"))
    return RunRecord(folder, result.config, result.history, known, result.summary())
