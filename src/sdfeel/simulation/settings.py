"""What can be set of a run: declared once, for Python, TOML, `--set`, records and documentation.

A field's name is that of the argument of `sdfeel.train`; its key that of a TOML file and of
`--set`, where it is another. Its description is its documentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.codecs import codecs_of
from sdfeel.algorithm.local import local_rule
from sdfeel.algorithm.paces import pace_of
from sdfeel.algorithm.rates import RATES, Constant, ShapedRate
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile, load_profile, profile_of
from sdfeel.network import Network
from sdfeel.simulation.named import to_table
from sdfeel.simulation.setting_fields import (
    AppField,
    AveragerField,
    AveragingRuleField,
    CodecsField,
    ConfigField,
    CorrectionField,
    Count,
    LocalField,
    PaceField,
    ProfileField,
    RateField,
    ScheduleField,
    SchemeField,
    ServerField,
    plain,
    real,
    whole,
)
from sdfeel.validation import validated

__all__ = ["Settings", "reference"]

TRAIN_SAMPLES = 5000


def _key(default: Any, description: str, key: str | None = None, **more: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"key": key}, **more)


class Settings(BaseModel):
    """All that can be set of a run but its model, data and network."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    steps: Count = _key(1000, "iterations K")
    until: Annotated[float, real(0, said="simulated seconds, above 0")] = _key(
        math.inf, "simulated seconds after which to stop before K"
    )
    scheme: SchemeField = _key(
        "sd-feel", "a row of `sdfeel.SCHEMES`, by name, or a `Scheme` of your own"
    )
    schedule: ScheduleField = _key(Schedule(), "`Schedule(tau1, tau2, alpha)`")
    participation: Annotated[float, real(0, 1, "a probability in (0, 1]")] = _key(
        1.0, "beta: probability that a client takes part in a period", "schedule.participation"
    )
    averager: AveragerField = _key(
        "paper",
        "how servers agree: a name of `sdfeel.AVERAGERS`, a mixing matrix, or one of your own",
    )
    averaging_rule: AveragingRuleField = _key(
        None, "what a server does instead of the weighted mean of its clients"
    )
    server: ServerField = _key(
        None, "what a server does with that mean: fedavgm, fedadagrad, fedadam or fedyogi"
    )
    local: LocalField = _key(
        local_rule("sgd"), "what a client does with a gradient: `sdfeel.Momentum(0.9)`"
    )
    lr: RateField = _key(
        Constant(),
        "the rate eta, or a function of the iteration k: `sdfeel.Cosine(0.1, over=2000)`; in a "
        "file a number, and its shape in `rate`",
    )
    codecs: CodecsField = _key(
        codecs_of(None), "what travels, by way: `{'up': 'int8', 'down': 'int8'}`; also `between`"
    )
    pace: PaceField = _key(
        pace_of("synchronous"),
        "who waits for whom: `sdfeel.Deadline(seconds=1.0)`, `sdfeel.Asynchronous()`",
    )
    correction: CorrectionField = _key(
        None, "of drift: two-level, clients, servers or mtgc, or `sdfeel.Correction(gamma=0.5)`"
    )
    batch_size: Count = _key(10, "at or above a client's data it means the client's full gradient")
    seed: Annotated[int, whole(0, 2**64 - 1, "a whole number from 0 to 2**64 - 1")] = _key(
        0, "of all that is random"
    )
    profile: ProfileField = _key(
        "paper",
        "latency profile: a name, the path of a TOML file, a dict with the keys of such a file "
        "or a `LatencyProfile`",
        "clock.profile",
    )
    flower: AppField = _key(
        None, "a Flower `ClientApp`, or its import path; in a file `flower:MODULE:APP`", "trainer"
    )
    run_config: ConfigField = _key({}, "what the app finds as its run_config", "flower.run_config")
    train_config: ConfigField = _key(
        {}, "what every message tells the app, beside `lr`", "flower.train_config"
    )
    engine: str = _key("auto", '"auto", "fast", "vectorised", "loop" or "reference"')
    device: str = _key("cpu", "where models are trained, as torch names it")
    evaluate_every: Count | None = _key(
        None, "iterations between two evaluations; a twentieth of the run", "evaluation.every"
    )
    train_samples: Annotated[int, whole(1, said="at least 1, or None for all")] | None = _key(
        TRAIN_SAMPLES, "on which the training loss is taken", "evaluation.train_samples"
    )
    evaluate_servers: bool = _key(
        True, "min, mean and max over the servers' own models", "evaluation.servers"
    )
    checkpoint_seconds: Annotated[float, real(-1e-300, said="seconds, not below 0")] = _key(
        60.0, "real seconds between two checkpoints"
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """From arguments of `sdfeel.train`."""
        return validated(cls, given)

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Field -> its dotted key in TOML."""
        found = {}
        for name, field in cls.model_fields.items():
            extra = field.json_schema_extra
            key = extra.get("key") if isinstance(extra, dict) else None
            found[name] = str(key) if key else name
        return found

    @classmethod
    def take_from(cls, table: dict[str, Any]) -> dict[str, Any]:
        """The arguments that a TOML table sets; they are taken out of it."""
        found: dict[str, Any] = {}
        for name, key in sorted(cls.keys().items(), key=lambda pair: -pair[1].count(".")):
            section, _, leaf = key.rpartition(".")
            place = table.get(section) if section else table
            if isinstance(place, dict) and leaf in place:
                found[name] = place.pop(leaf)
        if "rate" in table:  # a number and its shape are one thing
            shape = table.pop("rate")
            shape = dict(shape) if isinstance(shape, Mapping) else {"name": shape}
            found["lr"] = shape | ({"eta": found["lr"]} if "lr" in found else {})
        return found

    def table(self) -> dict[str, Any]:
        """The settings as TOML and records have them."""
        found: dict[str, Any] = {}
        for name, key in self.keys().items():
            section, _, leaf = key.rpartition(".")
            place = found.setdefault(section, {}) if section else found
            value = plain(name, getattr(self, name))
            if isinstance(value, dict) and isinstance(place.get(leaf), dict):
                place[leaf] |= value
            else:
                place[leaf] = value
        if isinstance(self.lr, ShapedRate):
            found["rate"] = to_table(self.lr, RATES)
            found["lr"] = found["rate"].pop("eta", found["lr"])
        return found

    @property
    def latency(self) -> LatencyProfile:
        """The latency profile; FLOPs that it wants counted are not yet."""
        given = self.profile
        if isinstance(given, Mapping):
            return profile_of(given)
        return given if isinstance(given, LatencyProfile) else load_profile(str(given))

    def algorithm(self, network: Network, profile: LatencyProfile, parameters: int) -> Algorithm:
        """What these settings mean on a network, for models of so many numbers."""
        return Algorithm.of(
            self.scheme,
            network,
            self.schedule,
            profile=profile,
            parameters=parameters,
            averager=self.averager,
            participation=self.participation,
            averaging_rule=self.averaging_rule,
            server=self.server,
            local=self.local,
            lr=self.lr,
            codecs=self.codecs,
            pace=self.pace,
            correction=self.correction,
            seed=self.seed,
        )


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
