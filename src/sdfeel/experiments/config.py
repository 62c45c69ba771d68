"""Runs as TOML: what can be set, what it is by default, and what a mistake in it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sdfeel.algorithm.schedule import Schedule
from sdfeel.errors import InputError, closest
from sdfeel.experiments.brought import bring_settings
from sdfeel.simulation.fields import TABLES, with_its_table
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.words import WORDS, ours
from sdfeel.toml import merge, read_toml, with_settings
from sdfeel.validation import validated

PRESETS = Path(__file__).with_name("presets")
MAX_BYTES = 2**20


class Strict(BaseModel):
    """Unknown keys are refused, and nothing is changed once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class GraphTurn(Strict):
    graph: str = "ring"
    options: dict[str, float] = Field(default_factory=dict)
    graph_file: str | None = None
    links: list[tuple[int, int]] | None = None
    rounds: int = Field(default=1, ge=1)  # for how many it lasts


class NetworkConfig(Strict):
    graph: str = "ring"
    servers: int = Field(default=10, ge=1)
    clients_per_server: int | list[int] = 5
    options: dict[str, float] = Field(default_factory=dict)  # of random and small-world graphs
    graph_file: str | None = None  # one link `a b` per line; in place of `graph`
    links: list[tuple[int, int]] | None = None  # pairs of servers; in place of `graph`
    clusters: list[list[int]] | None = None  # client numbers; in place of clients_per_server
    graphs: list[GraphTurn] | None = None  # one after the other, over and over; in place of graph
    clients_graph: str = "ring"  # of all clients, for d-psgd; by name, cluster by cluster


class DataConfig(Strict):
    name: str = "mnist-5k"  # or "package.module:function": see experiments/brought.py
    arguments: dict[str, Any] = Field(default_factory=dict)  # of that function
    partition: str = "dirichlet-fedma"
    concentration: float | None = Field(default=None, gt=0)  # of the Dirichlet partitions; 0.5
    seed: int | None = None  # of the partition; the run's own by default


class ModelConfig(Strict):
    name: str = "paper-cnn"  # or "package.module:function": see experiments/brought.py
    arguments: dict[str, Any] = Field(default_factory=dict)  # of that function
    loss: str | None = None  # "package.module:function" (outputs, targets); cross-entropy
    seed: int | None = None  # of the first values; the run's own by default


class EvaluationConfig(Strict):
    test_samples: int | None = Field(default=None, ge=1)  # on which the model is tested; all


class FlowerConfig(Strict):
    server: str | None = None  # "package.module:app", a Flower project's ServerApp
    folder: str | None = None  # of the project, where its modules are looked for


class RunConfig(Strict):
    """One run: its settings, and what its network, data and model are made of."""

    title: str = ""
    settings: Settings = Settings()
    network: NetworkConfig = NetworkConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    flower: FlowerConfig = FlowerConfig()
    trainers: str | None = None  # "my_file:trainer": see experiments/brought.py

    def table(self) -> dict[str, Any]:
        """Write it as a TOML file has it, and `run.json`."""
        made = self.model_dump(exclude={"settings"})
        return merge(self.settings.table(), made)

    def changed(self, **settings: Any) -> RunConfig:
        """Return the same run with other settings."""
        return self.model_copy(update={"settings": self.settings.model_copy(update=settings)})


class Variant(Strict):
    """One curve of a comparison: what differs from the common settings."""

    label: str
    change: dict[str, Any] = Field(default_factory=dict, alias="set")


class Experiment(Strict):
    """Common settings and the variants that are compared."""

    base: dict[str, Any]
    variants: list[Variant]

    def runs(self) -> dict[str, RunConfig]:
        """Return the config of every variant by its label."""
        labels = [variant.label for variant in self.variants]
        twice = {label for label in labels if labels.count(label) > 1}
        if twice:
            raise InputError("variant.label", sorted(twice)[0], "each variant needs its own label")
        return {
            variant.label: run_config(merge(self.base, variant.change), f"variant {variant.label}")
            for variant in self.variants
        }


def presets() -> dict[str, str]:
    """Return the presets that come with sdfeel: name -> what it is (the file's first line)."""
    return {
        path.stem: path.read_text("utf-8").splitlines()[0].lstrip("# ")
        for path in sorted(PRESETS.glob("*.toml"))
    }


def read_table(source: str) -> dict[str, Any]:
    """Read the table of a preset, a TOML file or a Flower project."""
    if source in presets():
        return read_toml(PRESETS / f"{source}.toml", "config")
    if Path(source).is_dir() or Path(source).name == "pyproject.toml":
        from sdfeel.flower.project import project_table  # Flower is optional

        table, change = project_table(Path(source))
        return merge(table, change)
    if source.endswith(".toml"):
        return read_toml(Path(source), "config", MAX_BYTES)
    remedy = (
        "the path of a .toml file, the folder of a Flower project, or a preset; "
        f"{closest(source, presets())}"
    )
    raise InputError("config", source, remedy)


def run_config(table: Mapping[str, Any], where: str = "config") -> RunConfig:
    """Check a table; a mistake is named with its key, its value and what would be right."""
    rest = merge(table, {})
    given = Settings.take_from(rest)
    keys = Settings.keys()
    _refuse_unknown(rest, keys.values(), where)
    try:
        settings = Settings.of(bring_settings(given))
    except InputError as problem:
        field = keys.get(problem.field, problem.field)
        raise InputError(f"{where}: {field}", problem.value, problem.remedy) from None
    return validated(RunConfig, {**rest, "settings": settings}, where)


def _refuse_unknown(rest: dict[str, Any], keys: Iterable[str], where: str) -> None:
    """Refuse what no setting took and nothing is made of; drop sections that were emptied."""
    made, tables = set(RunConfig.model_fields) - {"settings"}, _tables()
    known = {"rate"} | {key.partition(".")[0] for key in keys} | made
    for name in list(rest):
        if name in made and (name not in tables or isinstance(rest[name], dict)):
            continue
        inner = rest.pop(name)
        if name not in known:
            raise InputError(f"{where}: {name}", inner, f"unknown key; {_hint(name, keys, known)}")
        leaves = [k.partition(".")[2] for k in keys if k.startswith(f"{name}.")]
        leaves += tables.get(name, [])
        if not isinstance(inner, dict):
            first = "name" if "name" in leaves else leaves[0]
            remedy = f"is a table: did you mean {name}.{first}? {closest('', leaves)}"
            raise InputError(f"{where}: {name}", inner, remedy)
        for key, value in inner.items():
            remedy = f"unknown key; {closest(str(key), leaves)}"
            raise InputError(f"{where}: {name}.{key}", value, remedy)


def _tables() -> dict[str, list[str]]:
    """The keys of the tables that say what a run is made of."""
    kinds = ((name, field.annotation) for name, field in RunConfig.model_fields.items())
    return {
        name: list(kind.model_fields)
        for name, kind in kinds
        if isinstance(kind, type) and issubclass(kind, Strict)
    }


def _hint(name: str, keys: Iterable[str], known: Iterable[str]) -> str:
    """Name our key for a word of others, or one in a table: `schedule.tau1` for `tau1`."""
    parts = {"schedule": list(Schedule.__dataclass_fields__), **_tables()}
    for table, (_, kinds, _) in TABLES.items():
        parts[table] = [field.name for kind in kinds.values() for field in fields(kind)]
    dotted = [f"{table}.{leaf}" for table, leaves in parts.items() for leaf in leaves]
    same = [key for key in [*keys, *dotted] if key.rpartition(".")[2] == name and "." in key]
    near = WORDS[name][0] if name in WORDS else same[0] if same else ours(name, known)
    if near:
        return f"did you mean {near!r}{with_its_table(near)}?"
    return closest(name, known, "docs/settings.md")


def experiment_of(source: str, settings: Sequence[str] = (), schemes: str = "") -> Experiment:
    """Read a file or preset with `[[variant]]` tables; or a run's, once for each scheme."""
    table = read_table(source)
    variants = table.pop("variant", [])
    if schemes or not variants:
        names = [name.strip() for name in (schemes or "sd-feel,hierfavg,fedavg,feel").split(",")]
        variants = [{"label": name, "set": {"scheme": name}} for name in names]
    base = with_settings(table, settings)
    return validated(Experiment, {"base": base, "variants": variants}, source)
