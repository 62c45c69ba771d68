"""What can be set of a run: declared once, for Python, TOML, `--set`, records and documentation.

A field's name is that of the argument of `sdfeel.train`; its key that of a TOML file and of
`--set`, where it is another. Its description is its documentation.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.codecs import codecs_by_way
from sdfeel.algorithm.methods.optimizers import SGD
from sdfeel.algorithm.methods.rates import RATES, Constant, ShapedRate
from sdfeel.algorithm.paces import Synchronous
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.clock import LatencyProfile, load_profile, profile_of
from sdfeel.errors import InputError, closest
from sdfeel.network import Network
from sdfeel.simulation import fields
from sdfeel.simulation.words import WORDS, word_of_others
from sdfeel.tables import to_table
from sdfeel.validation import Count, Seed, validated

TRAIN_SAMPLES = 5000
AUTO = "auto"  # the latency profile that goes by the model


def _key(default: Any, description: str, key: str | None = None, **more: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"key": key}, **more)


class Settings(BaseModel):
    """All settings of a run: everything but its model, data and network."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    steps: Count = _key(1000, "iterations K; with `until` alone, as many as it takes")
    until: fields.Above0 = _key(
        math.inf, "simulated seconds: the run ends with the period that comes to them"
    )
    scheme: fields.AnyScheme = _key(
        SCHEMES["sd-feel"], "a row of `sdfeel.SCHEMES`, by name, or a `Scheme` of your own"
    )
    schedule: fields.AnySchedule = _key(
        Schedule(), "`Schedule(tau1, tau2, alpha)`, numbers or functions of the round"
    )
    participation: fields.Probability = _key(
        1.0, "beta: the probability that a client takes part in a period", "schedule.participation"
    )
    averager: fields.AnyAverager = _key(
        "paper",
        "how servers agree: a name of `sdfeel.AVERAGERS`, clipped or trimmed where neighbours may "
        "lie, a mixing matrix, or one of your own (in a file its import path, `my_file:averager`)",
    )
    averaging_rule: fields.AnyAveragingRule = _key(
        None, "what a server does instead of the weighted mean of its clients"
    )
    server_optimizer: fields.AnyServerOptimizer = _key(
        None, "what a server does with that mean: fedavgm, fedadagrad, fedadam or fedyogi"
    )
    optimizer: fields.AnyOptimizer = _key(
        SGD(), "what a client does with a gradient: `sdfeel.Momentum(0.9)`"
    )
    lr: fields.AnyRate = _key(
        Constant(),
        "the rate eta, or a function of the iteration k: `sdfeel.Cosine(0.1, over=2000)`; in a "
        "file a number, and its shape in `rate`",
    )
    codecs: fields.Codecs = _key(
        codecs_by_way({}),
        "what travels, by way (up, down, between): `{'up': 'int8', 'down': 'int8'}`",
    )
    pace: fields.AnyPace = _key(
        Synchronous(),
        "who waits for whom: `sdfeel.Deadline(seconds=1.0)`, `sdfeel.Asynchronous()`",
    )
    correction: fields.AnyCorrection = _key(
        None,
        "of clients' and servers' drift: two-level, clients, servers or mtgc, or "
        "`sdfeel.Correction(gamma=0.5)`",
    )
    methods: fields.Methods = _key(
        (),
        "more methods, of your own: objects of subclasses of `sdfeel.Method`; in a file import "
        "paths of what makes them, `my_file:Name`",
    )
    attacks: fields.AnyAttacks = _key(
        None, 'who lies, and how: `{"servers": {1: "dissensus"}, "clients": {3: "sign-flip"}}`'
    )
    batch_size: Count = _key(
        10, "samples of a mini-batch; a client with no more takes all of its data"
    )
    seed: Seed = _key(0, "of batches, participation, devices and codecs: of all that is random")
    profile: fields.AnyProfile = _key(
        AUTO,
        "latency profile: a name, the path of a TOML file, a dict with the keys of such a file "
        "or a `LatencyProfile`; auto: `paper` with the paper's network, else `counted`",
        "clock.profile",
    )
    flower: fields.AnyApp = _key(
        None, "a Flower `ClientApp`, or its import path; in a file `flower:MODULE:APP`", "trainer"
    )
    run_config: fields.Values = _key(
        {}, "what the app finds as its run_config", "flower.run_config"
    )
    train_config: fields.Values = _key(
        {}, "what every message tells the app, beside `lr`", "flower.train_config"
    )
    node_config: fields.ValuesOfNodes = _key(
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
    device: fields.AnyDevice = _key("cpu", "where models are trained, as torch names it: cpu, cuda")
    evaluate_every: Count | None = _key(
        None,
        "iterations between two evaluations; by default a twentieth of the run",
        "evaluation.every",
    )
    train_samples: fields.Samples | None = _key(
        TRAIN_SAMPLES,
        "samples on which the training loss is taken; None for all",
        "evaluation.train_samples",
    )
    evaluate_servers: bool = _key(
        True,
        "whether history has min, mean and max over the servers' own models",
        "evaluation.servers",
    )
    checkpoint_seconds: fields.Seconds = _key(60.0, "real seconds between two checkpoints")

    @classmethod
    def of(cls, given: Mapping[str, Any], others: Sequence[str] = ()) -> Settings:
        """Check arguments of `sdfeel.train`; `others` are its arguments that are no settings."""
        known = [*cls.model_fields, *others]
        for name, value in given.items():
            if name in cls.model_fields:
                continue
            word = word_of_others(name, known)
            remedy = (
                WORDS[word][1]
                if word
                else f"unknown argument; {closest(name, known, 'help(sdfeel.train)')}"
            )
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
            value = fields.plain(name, getattr(self, name))
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


# Settings that say what is done, and not on what or how fast; the profile comes with its FLOPs.
_PARTS = inspect.signature(Algorithm.of).parameters.keys() - {"profile"}
OF_ALGORITHM = Settings.model_fields.keys() & _PARTS


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
                "default": str(fields.plain(name, getattr(defaults, name))),
                "about": str(Settings.model_fields[name].description),
            }
            for name, key in Settings.keys().items()
        ),
    ]
