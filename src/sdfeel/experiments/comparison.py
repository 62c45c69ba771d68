"""`sdfeel.compare`: several schemes or settings on the same data, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import nn

from sdfeel import api
from sdfeel.algorithm.schemes import Scheme
from sdfeel.callbacks import check_callbacks
from sdfeel.errors import InputError
from sdfeel.experiments.compare import Contender, Entry, Started, run_all, slug
from sdfeel.files import check_writable
from sdfeel.network import Network
from sdfeel.records.comparison import COMPARISON, read_runs
from sdfeel.records.folder import environment
from sdfeel.records.reading import RunRecord, read_run
from sdfeel.reports.bands import BandKind, band
from sdfeel.reports.comparison import Written, write_comparison
from sdfeel.reports.tables import compare_table
from sdfeel.simulation import loading
from sdfeel.simulation.loop import Progress
from sdfeel.simulation.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "compare", "load"]

USUAL = ("sd-feel", "hierfavg", "fedavg", "feel")
# Arguments of `train` that say where and how a run is carried out: here they are said once.
NOT_HERE = ("out", "resume", "config", "on_start", "on_progress")
Variant = Mapping[str, Any] | str | Scheme


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `sdfeel.compare` gives.

    records  by label, one for each seed: settings and metrics
    results  the same with models; empty if it was loaded without a model
    table    a pandas DataFrame, a row for each label: how it ended, and seconds to some accuracies
    curves   all evaluations in one DataFrame, with columns `label` and `seed`
    """

    records: Mapping[str, Sequence[RunRecord]]
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)
    title: str = ""

    def __repr__(self) -> str:
        return f"{self.title or 'Comparison'}\n{self.table.to_string()}"

    @cached_property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(compare_table(self.records)).set_index("label")

    @cached_property
    def curves(self) -> pd.DataFrame:
        parts = [
            record.metrics.assign(label=label, seed=record.config.get("seed"))
            for label, of in self.records.items()
            for record in of
        ]
        whole = pd.concat(parts, ignore_index=True)
        return whole[["label", "seed", *(c for c in whole if c not in ("label", "seed"))]]

    def band(
        self, column: str = "train_loss", x: str = "seconds", kind: BandKind = "range"
    ) -> pd.DataFrame:
        """Over the seeds of each label, at every x: columns label, x, middle, low and high.

        kind  what lies between low and high: "range", or "quartiles"; middle is the median
        """
        parts = []
        for label, of in self.records.items():
            found = band([record.metrics for record in of], x, column, kind)
            if found is not None:
                lines = {"middle": found.middle, "low": found.low, "high": found.high}
                parts.append(pd.DataFrame({"label": label, x: found.x} | lines))
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
        """Loss and metrics of all, medians with bands; written to `path` too if one is given.

        path    "c.pdf" is written alone, "c.png" and "c.svg" beside each other
        x       "seconds" (simulated) or "iteration"
        spread  what a band spans: "range" or "quartiles"
        until   where the x axis ends
        """
        from sdfeel.reports.figures import figure_of_metrics, save_figure  # takes a while

        frames = {label: [one.metrics for one in of] for label, of in self.records.items()}
        figure = figure_of_metrics(
            frames, title=self.title or None, spread=spread, until=until, x=x
        )
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def save(self, folder: str | Path) -> Written:
        """Every run in a folder of its own, figure, table and page: as `sdfeel compare` leaves it.

        `sdfeel watch` and `sdfeel plot` show it, `sdfeel.load` gives it back.
        """
        target = Path(folder)
        if not self.results:
            raise InputError("folder", str(folder), "was loaded without a model: nothing to save")
        if (target / COMPARISON).exists():
            raise InputError("folder", str(folder), "holds a comparison already: name another one")
        check_writable(target)
        records: dict[str, list[RunRecord]] = {}
        for label, of in self.results.items():
            for result in of:
                name = label if len(of) == 1 else f"{label}, seed {result.config.get('seed')}"
                records.setdefault(label, []).append(read_run(result.save(target / slug(name))))
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
    on_start: Started = lambda *_: None,
    on_progress: Callable[[str, Progress], None] = lambda *_: None,
    **common: Any,
) -> Comparison:
    """Train by several schemes or settings, and put them side by side over simulated time.

    Everything is checked before anything is trained.

    model            any nn.Module: where every run starts
    client_datasets  as for `sdfeel.train`
    variants         what differs: schemes, `["sd-feel", "fedavg"]`; or by label what to change of
                     `common`, `{"often": {"schedule": Schedule(1, 1, 5)}, "rare": {...}}`. Any
                     argument of `sdfeel.train` may be changed, the network too. By default sd-feel,
                     hierfavg, fedavg and feel
    network          clusters and graph
    seeds            how many, 0 to N-1, or which; 1 leaves the seed as it is set. Curves of
                     several seeds get a band
    title            of figure and page
    out              folder that keeps every run as it goes, in a folder of its own. The same call
                     goes on with what was stopped, and does not do again what is done
    on_start         called with the engine's name and why it is this one
    on_progress      called with a run's name and its `Progress` now and then
    common           arguments of `sdfeel.train` that all variants share: steps, lr, test, ...
    """
    given = {"model": model, "client_datasets": client_datasets, "network": network, **common}
    contenders = {label: _of(given, change) for label, change in _variants(variants).items()}
    if out is not None:
        check_writable(Path(out))
    found = run_all(
        contenders,
        _seeds(seeds),
        None if out is None else Path(out),
        on_start=on_start,
        on_progress=on_progress,
    )
    records = {label: [_record(label, one) for one in of] for label, of in found.items()}
    results = {label: [one.result for one in of if one.result] for label, of in found.items()}
    if out is not None:
        write_comparison(out, records, title=title)
    return Comparison(records, results, title)


def load(folder: str | Path, model: nn.Module | None = None) -> Any:
    """What a folder keeps: the `Result` of a run that ended, or a `Comparison`.

    folder  that of `out=`, `--out`, `Result.save` or `Comparison.save`
    model   the network that was trained, with any weights: a folder holds weights, not code. A run
            of `sdfeel run` with a model of ours needs none, and a comparison has its curves and
            table without
    """
    if not isinstance(folder, str | Path):
        raise InputError("folder", folder, "the path of a folder, as `out=` had it")
    if not (Path(folder) / COMPARISON).is_file():
        return loading.load(folder, model)
    title, records = read_runs(folder)
    results: dict[str, list[Result]] = {}
    if model is not None:
        results = {
            label: [loading.load(one.path, model) for one in of] for label, of in records.items()
        }
    return Comparison(records, results, title)


@dataclass(frozen=True)
class _Arguments(Contender):
    """A contender as arguments of `train`."""

    given: Mapping[str, Any]

    def check(self) -> None:
        own = dict(self.given)
        check_callbacks(own.pop("callbacks", ()))
        if not isinstance(own.get("network"), Network):
            raise InputError("network", own.get("network"), "a sdfeel.Network: Network.ring(10, 5)")
        simulation, trainers = api.assembled(**own)
        if trainers is not None:
            simulation.by_periods().engine_of(trainers).engine.close()

    def run(
        self,
        seed: int | None,
        out: Path | None,
        on_start: Started,
        on_progress: Callable[[Progress], None],
    ) -> Result:
        own = dict(self.given) if seed is None else {**self.given, "seed": seed}
        return api.train(
            **own, on_start=on_start, on_progress=on_progress, out=out, resume=out is not None
        )


def _of(common: Mapping[str, Any], change: Mapping[str, Any]) -> _Arguments:
    whole = {**common, **change}
    for name in NOT_HERE:
        if name in whole:
            raise InputError(name, whole[name], "is said once for all, as an argument of compare")
    return _Arguments(whole)


def _variants(given: Any) -> dict[str, Mapping[str, Any]]:
    """What changes, by label."""
    example = '["sd-feel", "fedavg"] or {"often": {"schedule": Schedule(1, 1, 5)}}'
    given = USUAL if given is None else given
    if isinstance(given, Mapping):
        listed = [({"label": label, **_change(label, one)}) for label, one in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        listed = [_change(f"variants[{number}]", one) for number, one in enumerate(given)]
    else:
        raise InputError("variants", given, f"schemes, or what differs by label: {example}")
    found: dict[str, Mapping[str, Any]] = {}
    for number, one in enumerate(listed):
        scheme = one.get("scheme")
        label = one.pop("label", scheme.name if isinstance(scheme, Scheme) else scheme)
        if not isinstance(label, str) or not label:
            raise InputError(f"variants[{number}]", label, "needs a label of its own")
        if label in found:
            raise InputError("variant.label", label, "each variant needs its own label")
        found[label] = one
    if not found:
        raise InputError("variants", given, f"at least one: {example}")
    return found


def _change(where: str, one: Any) -> dict[str, Any]:
    if isinstance(one, str | Scheme):
        return {"scheme": one}
    if not isinstance(one, Mapping) or not all(isinstance(key, str) for key in one):
        raise InputError(where, one, "a scheme, or a dict of arguments of sdfeel.train")
    return dict(one)


def _seeds(given: Any) -> list[int | None]:
    several = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    numbers = [given] if several is None else several
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise InputError("seeds", given, "how many, or a list of whole numbers")
    if not numbers or given == 0 or len(set(numbers)) < len(numbers):
        raise InputError("seeds", given, "at least one, each once")
    if several is not None:
        return several
    return [None] if given == 1 else list(range(given))


def _record(label: str, one: Entry) -> RunRecord:
    if one.folder is not None:
        return read_run(one.folder)
    assert one.result is not None  # noqa: S101 - only what a folder holds is not carried out
    result, path = one.result, Path(slug(label))
    seed = result.config.get("seed")
    return RunRecord(path, result.config, result.history, environment(seed), result.summary())
