"""What can be set of a run: declared once, for Python, TOML, `--set`, records and documentation.

A field's name is that of the argument of `sdfeel.train`; its key that of a TOML file and of
`--set`, where it is another. Its description is its documentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.averaging import RULES, AveragingRule, GivenRule, Rule
from sdfeel.algorithm.methods.codecs import CODECS, WAYS, Codec, codecs_by_way
from sdfeel.algorithm.methods.corrections import CORRECTIONS, Correction
from sdfeel.algorithm.methods.method import Method
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, SGD, Optimizer
from sdfeel.algorithm.methods.rates import RATES, Constant, Rate, ShapedRate, rate_of
from sdfeel.algorithm.methods.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from sdfeel.algorithm.paces import PACES, Pace, Synchronous
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES, Scheme
from sdfeel.clock import LatencyProfile, load_profile, profile_names, profile_of, profile_table
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, Averager, Builder, MatrixAverager, Network
from sdfeel.simulation.words import WORDS, word_of_others
from sdfeel.tables import choice, from_table, name_of, to_table
from sdfeel.validation import Anything, Count, Seed, real, validated, whole

__all__ = ["AUTO", "Settings", "plain", "reference"]

TRAIN_SAMPLES = 5000
AUTO = "auto"  # the latency profile that goes by the model


def _scheme(value: Any) -> Scheme:
    """A name of the table, or a row of the user's."""
    if isinstance(value, Scheme):
        return value
    if not isinstance(value, str) or value not in SCHEMES:
        if isinstance(value, str) and value.lower() in NOT_SCHEMES:
            raise InputError("scheme", value, NOT_SCHEMES[value.lower()])
        raise InputError("scheme", value, closest(str(value), SCHEMES))
    return SCHEMES[value]


# What others call a scheme and is something else here.
NOT_SCHEMES = {
    "fedprox": 'is an optimizer here: scheme="fedavg", optimizer=sdfeel.SGD(prox=0.01)',
    **{
        name: f'is a server_optimizer here: scheme="fedavg", server_optimizer="{name}"'
        for name in SERVER_OPTIMIZERS
    },
    "scaffold": 'is a correction here: scheme="fedavg", correction="clients"',
    "mtgc": 'is a correction here: scheme="hierfavg", correction="mtgc"',
    "feddyn": "is a method: see examples/methods/feddyn.py",
    "fednova": "is a method: see examples/methods/fednova.py",
    "ditto": "is a method: see examples/methods/ditto.py",
}


def _schedule(value: Any) -> Schedule:
    if isinstance(value, Schedule):
        return value
    if value is None:
        return Schedule()
    if not isinstance(value, Mapping):
        raise InputError("schedule", value, "such as Schedule(tau1=2, tau2=1, alpha=5)")
    known = [*vars(Schedule()), "participation"]  # a file has it here, and it was taken out
    for key in value:
        if key not in known:
            raise InputError(f"schedule.{key}", value[key], f"unknown key; {closest(key, known)}")
    if "participation" in value:
        remedy = "is an argument of its own: participation=0.5"
        raise InputError("schedule.participation", value["participation"], remedy)
    return Schedule(**value)


def _rate(value: Any) -> Rate:
    """A number, an object, a function; or the table that `lr` and `rate` of a file make."""
    if not isinstance(value, Mapping):
        return rate_of(value)
    Constant(value.get("eta", Constant().eta))  # or the mistake is `lr`, whatever the shape
    rate: Rate = from_table("rate", value, RATES)
    return rate


def _codecs(value: Any) -> dict[str, Codec]:
    """A codec by way: a name, a table with its settings, or an object."""
    if not isinstance(value, Mapping | None):
        raise InputError("codecs", value, 'a codec by way, such as {"up": "int8"}')
    given = value or {}
    for way in given:
        if way not in WAYS:
            raise InputError("codecs", way, f"a way that models take; {closest(way, WAYS)}")
    check = {way: choice(f"codecs.{way}", Codec, CODECS) for way in given}
    return codecs_by_way({way: check[way](codec) for way, codec in given.items()})


def _methods(value: Any) -> tuple[Method, ...]:
    listed = [value] if isinstance(value, Method) else value
    if not isinstance(listed, Sequence) or not all(isinstance(each, Method) for each in listed):
        raise InputError("methods", value, "a list of objects of your subclasses of sdfeel.Method")
    return tuple(listed)


def _profile(value: Any) -> Any:
    """A table is checked, and kept as it is."""
    if isinstance(value, Mapping):
        return profile_table(profile_of(value))
    if not isinstance(value, str | Path | LatencyProfile):
        raise InputError(
            "profile", value, "a name, the path of a .toml file or its table as a dict"
        )
    return value


def _averager(value: Any) -> Any:
    """A name, an object, a function; or a matrix, also as the lists that a file has."""
    if isinstance(value, str) and value not in AVERAGERS:
        raise InputError("averager", value, closest(value, AVERAGERS))
    is_known = isinstance(value, str | Averager) or callable(value)
    return value if is_known else MatrixAverager.of(value)


def _app(value: Any) -> Any:
    """A Flower app or its import path; a file says which kind of trainer it names."""
    if not isinstance(value, str):
        return value
    path = value.removeprefix("flower:")
    if not all(path.partition(":")[::2]):
        remedy = "flower:MODULE:APP, such as flower:my_app.client_app:app"
        raise InputError("trainer", value, remedy)
    return path


def _device(value: Any) -> str:
    if not isinstance(value, str | torch.device):
        raise InputError("", value, "a name, such as cpu or cuda, or a torch.device")
    return str(value)


def _config(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError("", value, 'a table of names and values, such as {"local-epochs": 1}')
    return dict(value)


def _nodes(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else _config(value)


def _key(default: Any, description: str, key: str | None = None, **more: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"key": key}, **more)


RULES_BY_NAME = dict.fromkeys(RULES, Rule)
BY_NAME = dict.fromkeys(CORRECTIONS, Correction)
Probability = Annotated[float, real(lambda x: 0 < x <= 1, "a probability in (0, 1]")]
Above0 = Annotated[float, real(lambda x: x > 0, "simulated seconds, above 0")]
Seconds = Annotated[float, real(lambda x: 0 <= x < math.inf, "seconds, not below 0")]
Samples = Annotated[int, whole(1, remedy="at least 1, or None for all")]


# Settings that say what is done, and not on what or how fast.
OF_ALGORITHM = (
    "scheme", "schedule", "averager", "participation", "averaging_rule", "server_optimizer",
    "optimizer", "correction", "methods", "lr", "codecs", "pace", "seed",
)  # fmt: skip


class Settings(BaseModel):
    """All settings of a run: everything but its model, data and network."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    steps: Count = _key(1000, "iterations K; with `until` alone, those that fit into it")
    until: Above0 = _key(math.inf, "simulated seconds after which to stop before K")
    scheme: Annotated[Scheme, PlainValidator(_scheme)] = _key(
        SCHEMES["sd-feel"], "a row of `sdfeel.SCHEMES`, by name, or a `Scheme` of your own"
    )
    schedule: Annotated[Schedule, PlainValidator(_schedule)] = _key(
        Schedule(), "`Schedule(tau1, tau2, alpha)`, numbers or functions of the round"
    )
    participation: Probability = _key(
        1.0, "beta: the probability that a client takes part in a period", "schedule.participation"
    )
    averager: Annotated[str | Averager | Builder, PlainValidator(_averager)] = _key(
        "paper",
        "how servers agree: a name of `sdfeel.AVERAGERS`, a mixing matrix, or one of your own",
    )
    averaging_rule: Annotated[
        AveragingRule | None,
        PlainValidator(
            choice("averaging_rule", AveragingRule, RULES_BY_NAME, none="mean", function=GivenRule)
        ),
    ] = _key(None, "what a server does instead of the weighted mean of its clients")
    server_optimizer: Annotated[
        ServerOptimizer | None,
        PlainValidator(choice("server_optimizer", ServerOptimizer, SERVER_OPTIMIZERS, none="mean")),
    ] = _key(None, "what a server does with that mean: fedavgm, fedadagrad, fedadam or fedyogi")
    optimizer: Annotated[Optimizer, PlainValidator(choice("optimizer", Optimizer, OPTIMIZERS))] = (
        _key(SGD(), "what a client does with a gradient: `sdfeel.Momentum(0.9)`")
    )
    lr: Annotated[Rate, PlainValidator(_rate)] = _key(
        Constant(),
        "the rate eta, or a function of the iteration k: `sdfeel.Cosine(0.1, over=2000)`; in a "
        "file a number, and its shape in `rate`",
    )
    codecs: Annotated[Mapping[str, Codec], PlainValidator(_codecs)] = _key(
        codecs_by_way({}),
        "what travels, by way (up, down, between): `{'up': 'int8', 'down': 'int8'}`",
    )
    pace: Annotated[Pace, PlainValidator(choice("pace", Pace, PACES))] = _key(
        Synchronous(),
        "who waits for whom: `sdfeel.Deadline(seconds=1.0)`, `sdfeel.Asynchronous()`",
    )
    correction: Annotated[
        Method | None,
        PlainValidator(choice("correction", Method, BY_NAME, none="none", default="two-level")),
    ] = _key(
        None,
        "of clients' and servers' drift: two-level, clients, servers or mtgc, or "
        "`sdfeel.Correction(gamma=0.5)`",
    )
    methods: Annotated[Sequence[Method], PlainValidator(_methods)] = _key(
        (), "more methods, of your own: objects of subclasses of `sdfeel.Method`"
    )
    batch_size: Count = _key(
        10, "samples of a mini-batch; a client with no more takes all of its data"
    )
    seed: Seed = _key(0, "of batches, participation, devices and codecs: of all that is random")
    profile: Annotated[Any, PlainValidator(_profile)] = _key(
        AUTO,
        "latency profile: a name, the path of a TOML file, a dict with the keys of such a file "
        "or a `LatencyProfile`; auto: `paper` with the paper's network, else `counted`",
        "clock.profile",
    )
    flower: Annotated[Anything, PlainValidator(_app)] = _key(
        None, "a Flower `ClientApp`, or its import path; in a file `flower:MODULE:APP`", "trainer"
    )
    run_config: Annotated[Mapping[str, Any], PlainValidator(_config)] = _key(
        {}, "what the app finds as its run_config", "flower.run_config"
    )
    train_config: Annotated[Mapping[str, Any], PlainValidator(_config)] = _key(
        {}, "what every message tells the app, beside `lr`", "flower.train_config"
    )
    node_config: Annotated[Mapping[str, Any] | Sequence[Any], PlainValidator(_nodes)] = _key(
        {},
        "what the app finds as its node_config: values for all clients, or a list with one for "
        "each",
        "flower.node_config",
    )
    processes: Count | None = _key(
        None,
        "in how many processes clients of the app train; one for each core",
        "flower.processes",
    )
    engine: str = _key("auto", '"auto", "fast", "vectorised", "loop" or "reference"')
    device: Annotated[str, BeforeValidator(_device)] = _key(
        "cpu", "where models are trained, as torch names it: cpu, cuda"
    )
    evaluate_every: Count | None = _key(
        None,
        "iterations between two evaluations; by default a twentieth of the run",
        "evaluation.every",
    )
    train_samples: Samples | None = _key(
        TRAIN_SAMPLES,
        "samples on which the training loss is taken; None for all",
        "evaluation.train_samples",
    )
    evaluate_servers: bool = _key(
        True,
        "whether history has min, mean and max over the servers' own models",
        "evaluation.servers",
    )
    checkpoint_seconds: Seconds = _key(60.0, "real seconds between two checkpoints")

    @classmethod
    def of(cls, given: Mapping[str, Any], others: Sequence[str] = ()) -> Settings:
        """Check arguments of `sdfeel.train`; `others` are its arguments that are no settings."""
        known = [*cls.model_fields, *others]
        for name, value in given.items():
            if name in cls.model_fields:
                continue
            word = word_of_others(name, known)
            remedy = WORDS[word][1] if word else f"unknown argument; {closest(name, known)}"
            raise InputError(name, value, remedy)
        return validated(cls, given)

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Field -> its dotted key in TOML."""
        keys = {}
        for name, field in cls.model_fields.items():
            extra = field.json_schema_extra
            key = extra.get("key") if isinstance(extra, dict) else None
            keys[name] = str(key) if key else name
        return keys

    @classmethod
    def take_from(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Take the arguments that a TOML table sets out of it."""
        arguments: dict[str, Any] = {}
        for name, key in sorted(cls.keys().items(), key=lambda pair: -pair[1].count(".")):
            section, _, leaf = key.rpartition(".")
            place = table.get(section) if section else table
            if isinstance(place, dict) and leaf in place:
                arguments[name] = place.pop(leaf)
        if "rate" in table:  # a number and its shape are one thing
            shape = table.pop("rate")
            shape = dict(shape) if isinstance(shape, Mapping) else {"name": shape}
            arguments["lr"] = shape | ({"eta": arguments["lr"]} if "lr" in arguments else {})
        return arguments

    def table(self) -> dict[str, Any]:
        """The settings as TOML and records have them."""
        table: dict[str, Any] = {}
        for name, key in self.keys().items():
            section, _, leaf = key.rpartition(".")
            place = table.setdefault(section, {}) if section else table
            value = plain(name, getattr(self, name))
            if isinstance(value, dict) and isinstance(place.get(leaf), dict):
                place[leaf] |= value
            else:
                place[leaf] = value
        if isinstance(self.lr, ShapedRate):
            table["rate"] = to_table(self.lr, RATES)
            table["lr"] = table["rate"].pop("eta", table["lr"])
        return table

    @property
    def latency(self) -> LatencyProfile:
        """The latency profile; FLOPs that it wants counted are not yet."""
        given = "counted" if self.profile == AUTO else self.profile
        if isinstance(given, Mapping):
            return profile_of(given)
        return given if isinstance(given, LatencyProfile) else load_profile(str(given))

    def algorithm(self, network: Network, profile: LatencyProfile, parameters: int) -> Algorithm:
        """Return the algorithm of these settings on a network, for models of so many numbers."""
        given = {name: getattr(self, name) for name in OF_ALGORITHM}
        return Algorithm.of(network=network, profile=profile, parameters=parameters, **given)


# Settings that are objects of a table, and the word for none of them.
TABLES: dict[str, tuple[Mapping[str, type], str | None]] = {
    "optimizer": (OPTIMIZERS, None),
    "server_optimizer": (SERVER_OPTIMIZERS, "mean"),
    "averaging_rule": (RULES_BY_NAME, "mean"),
    "correction": (BY_NAME, "none"),
    "pace": (PACES, None),
}


def plain(name: str, value: Any) -> Any:
    """The value of the setting `name`, as JSON and TOML can have it."""
    if name in TABLES:
        known, none = TABLES[name]
        if value is None:
            return {"name": none}
        table = to_table(value, known)
        return table | {"name": value.name} if type(value) in (Rule, Correction) else table
    if name == "codecs":
        return {way: _codec_table(codec) for way, codec in value.items()}
    if name == "methods":
        return [name_of(method) for method in value]
    if name == "flower" and value is not None:
        return f"flower:{value if isinstance(value, str) else name_of(value)}"
    if isinstance(value, LatencyProfile):
        is_ours = value.name in profile_names() and load_profile(value.name) == value
        value = value.name if is_ours else profile_table(value)
    elif isinstance(value, ShapedRate):
        value = value.eta
    elif isinstance(value, MatrixAverager):
        value = [list(row) for row in value.rows]
    elif isinstance(value, Schedule):
        value = {n: name_of(v) if callable(v) else v for n, v in vars(value).items()}
    elif isinstance(value, Scheme | Averager):
        value = value.name
    elif value == math.inf:
        value = None
    is_known = isinstance(value, int | float | str | bool | dict | list | None)
    return value if is_known else name_of(value)


def _codec_table(codec: Codec) -> Any:
    """Return the table of a codec; its name alone, where that says it all."""
    table = to_table(codec, CODECS)
    is_usual = table["name"] not in CODECS or codec == CODECS[table["name"]]()
    return table["name"] if is_usual else table


def reference() -> list[dict[str, str]]:
    """A row for every setting: its key, its argument, its default and what it is."""
    defaults = Settings()
    shape = "the shape of `lr` over k: constant, step, cosine or inverse, with `warmup`"
    rate = {"key": "rate.name", "argument": "lr", "default": "constant", "about": shape}
    return [
        rate,
        *(
            {
                "key": key,
                "argument": name,
                "default": str(plain(name, getattr(defaults, name))),
                "about": str(Settings.model_fields[name].description),
            }
            for name, key in Settings.keys().items()
        ),
    ]
