"""What can be set of a run: declared once, for Python, TOML, `--set`, records and documentation.

A field's name is that of the argument of `sdfeel.train`; its key that of a TOML file and of
`--set`, where it is another. Its description is its documentation.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.averaging import RULES, AveragingRule, Rule
from sdfeel.algorithm.codecs import CODECS, Codec, codecs_of
from sdfeel.algorithm.correction import CORRECTIONS, Correction, correction_of
from sdfeel.algorithm.local import LOCAL_RULES, LocalRule, local_rule
from sdfeel.algorithm.pace import Pace
from sdfeel.algorithm.paces import PACES, pace_of
from sdfeel.algorithm.rates import RATES, Constant, Rate, ShapedRate, rate_of
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES, Scheme
from sdfeel.algorithm.server_rule import SERVER_RULES, ServerRule, server_rule
from sdfeel.clock import (
    LatencyProfile,
    load_profile,
    profile_names,
    profile_of,
    profile_table,
)
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, Averager, Builder, MatrixAverager, Network
from sdfeel.simulation.named import from_table, name_of, to_table
from sdfeel.validation import validated

__all__ = ["Settings", "reference"]

TRAIN_SAMPLES = 5000


def _whole(least: int, most: float = math.inf, said: str = "") -> BeforeValidator:
    def check(value: Any) -> int:
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or not least <= value <= most:
            raise InputError("", value, said or f"a whole number, at least {least}")
        return int(value)

    return BeforeValidator(check)


def _real(above: float, most: float = math.inf, said: str = "") -> BeforeValidator:
    def check(value: Any) -> float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not above < value <= most:
            raise InputError("", value, said or f"a number above {above:g}")
        return float(value)

    return BeforeValidator(check)


Count = Annotated[int, _whole(1)]


def _key(default: Any, description: str, key: str | None = None, **more: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"key": key}, **more)


def _scheme(value: Any) -> Any:
    """A name of the table, or a row of the user's."""
    if isinstance(value, str) and value not in SCHEMES:
        raise InputError("scheme", value, closest(value, SCHEMES))
    if not isinstance(value, str | Scheme):
        raise InputError("scheme", value, f"a name, or a `Scheme`; {closest('', SCHEMES)}")
    return value


def _rate(value: Any) -> Rate:
    """A number, an object, a function; or the table that `lr` and `rate` of a file make."""
    if not isinstance(value, Mapping):
        return rate_of(value)
    Constant(value.get("eta", Constant().eta))  # or the mistake is `lr`, whatever the shape
    rate: Rate = from_table("rate", value, RATES)
    return rate


def _schedule(value: Any) -> Schedule:
    if isinstance(value, Schedule):
        return value
    if value is None:
        return Schedule()
    if not isinstance(value, Mapping):
        raise InputError("schedule", value, "such as Schedule(tau1=2, tau2=1, alpha=5)")
    schedule: Schedule = from_table("schedule", value, {"schedule": Schedule})
    return schedule


def _table_or(make: Callable[[Any], Any], where: str, known: Mapping[str, type]) -> PlainValidator:
    def check(value: Any) -> Any:
        return from_table(where, value, known) if isinstance(value, Mapping) else make(value)

    return PlainValidator(check)


def _correction(value: Any) -> Correction | None:
    if not isinstance(value, Mapping):
        return correction_of(value)
    known = dict.fromkeys(CORRECTIONS, Correction)
    if value.get("name") == "none":
        given = sorted(set(value) - {"name", "gamma", "guard"})
        if given:
            raise InputError(f"correction.{given[0]}", value[given[0]], "unknown key")
        return None
    found: Correction = from_table("correction", {"name": "two-level", **value}, known)
    return found


def _codecs(value: Any) -> dict[str, Codec]:
    """A codec by way: a name, a table with its settings, or an object."""
    if isinstance(value, Mapping):
        value = {
            way: from_table(f"codecs.{way}", own, CODECS) if isinstance(own, Mapping) else own
            for way, own in value.items()
        }
    return codecs_of(value)


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
    known = isinstance(value, str | Averager) or callable(value)
    return value if known else MatrixAverager.of(value)


def _app(value: Any) -> Any:
    """A Flower app or its import path; a file says which kind of trainer it names."""
    if not isinstance(value, str):
        return value
    path = value.removeprefix("flower:")
    if not all(path.partition(":")[::2]):
        raise InputError(
            "trainer", value, "flower:MODULE:APP, such as flower:my_app.client_app:app"
        )
    return path


def _config(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError("", value, 'a table of names and values, such as {"local-epochs": 1}')
    return dict(value)


def _averaging_rule(value: Any) -> AveragingRule | None:
    """None for the mean: it is built in."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, Mapping):
        name = value.get("name", "mean")
        value = from_table("averaging_rule", {"name": name, **value}, dict.fromkeys(RULES, Rule))
    if value is not None and not callable(value):
        raise InputError("averaging_rule", value, closest(str(value), RULES))
    return None if isinstance(value, Rule) and value.name == "mean" else value


def _server(value: Any) -> ServerRule | None:
    if not isinstance(value, Mapping) or value.get("name", "mean") == "mean":
        alone = not isinstance(value, Mapping) or set(value) <= {"name"}
        if not alone:
            key = next(key for key in value if key != "name")
            raise InputError(f"server.{key}", value[key], "the mean has no settings: name a rule")
        return server_rule(None if isinstance(value, Mapping) else value)
    found: ServerRule = from_table("server", value, SERVER_RULES)
    return found


class Settings(BaseModel):
    """All that can be set of a run but its model, data and network."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    steps: Count = _key(1000, "iterations K")
    until: Annotated[float, _real(0, said="simulated seconds, above 0")] = _key(
        math.inf, "simulated seconds after which to stop before K"
    )
    scheme: Annotated[str | Scheme, PlainValidator(_scheme)] = _key(
        "sd-feel", "a row of `sdfeel.SCHEMES`, by name, or a `Scheme` of your own"
    )
    schedule: Annotated[Schedule, PlainValidator(_schedule)] = _key(
        Schedule(), "`Schedule(tau1, tau2, alpha)`"
    )
    participation: Annotated[float, _real(0, 1, "a probability in (0, 1]")] = _key(
        1.0, "beta: probability that a client takes part in a period", "schedule.participation"
    )
    averager: Annotated[str | Averager | Builder, PlainValidator(_averager)] = _key(
        "paper",
        "how servers agree: a name of `sdfeel.AVERAGERS`, a mixing matrix, or one of your own",
    )
    averaging_rule: Annotated[AveragingRule | None, PlainValidator(_averaging_rule)] = _key(
        None, "what a server does instead of the weighted mean of its clients"
    )
    server: Annotated[ServerRule | None, PlainValidator(_server)] = _key(
        None, "what a server does with that mean: fedavgm, fedadagrad, fedadam or fedyogi"
    )
    local: Annotated[LocalRule, _table_or(local_rule, "local", LOCAL_RULES)] = _key(
        local_rule("sgd"), "what a client does with a gradient: `sdfeel.Momentum(0.9)`"
    )
    lr: Annotated[Rate, PlainValidator(_rate)] = _key(
        Constant(),
        "the rate eta, or a function of the iteration k: `sdfeel.Cosine(0.1, over=2000)`; in a "
        "file a number, and its shape in `rate`",
    )
    codecs: Annotated[Mapping[str, Codec], PlainValidator(_codecs)] = _key(
        codecs_of(None), "what travels, by way: `{'up': 'int8', 'down': 'int8'}`; also `between`"
    )
    pace: Annotated[Pace, _table_or(pace_of, "pace", PACES)] = _key(
        pace_of("synchronous"),
        "who waits for whom: `sdfeel.Deadline(seconds=1.0)`, `sdfeel.Asynchronous()`",
    )
    correction: Annotated[Correction | None, PlainValidator(_correction)] = _key(
        None, "of drift: two-level, clients, servers or mtgc, or `sdfeel.Correction(gamma=0.5)`"
    )
    batch_size: Count = _key(10, "at or above a client's data it means the client's full gradient")
    seed: Annotated[int, _whole(0, 2**64 - 1, "a whole number from 0 to 2**64 - 1")] = _key(
        0, "of all that is random"
    )
    profile: Annotated[
        str | Path | Mapping[str, Any] | LatencyProfile, PlainValidator(_profile)
    ] = _key(
        "paper",
        "latency profile: a name, the path of a TOML file, a dict with the keys of such a file "
        "or a `LatencyProfile`",
        "clock.profile",
    )
    flower: Annotated[Any, PlainValidator(_app)] = _key(
        None, "a Flower `ClientApp`, or its import path; in a file `flower:MODULE:APP`", "trainer"
    )
    run_config: Annotated[Mapping[str, Any], PlainValidator(_config)] = _key(
        {}, "what the app finds as its run_config", "flower.run_config"
    )
    train_config: Annotated[Mapping[str, Any], PlainValidator(_config)] = _key(
        {}, "what every message tells the app, beside `lr`", "flower.train_config"
    )
    engine: str = _key("auto", '"auto", "fast", "vectorised", "loop" or "reference"')
    device: str = _key("cpu", "where models are trained, as torch names it")
    evaluate_every: Count | None = _key(
        None, "iterations between two evaluations; a twentieth of the run", "evaluation.every"
    )
    train_samples: Annotated[int, _whole(1, said="at least 1, or None for all")] | None = _key(
        TRAIN_SAMPLES, "on which the training loss is taken", "evaluation.train_samples"
    )
    evaluate_servers: bool = _key(
        True, "min, mean and max over the servers' own models", "evaluation.servers"
    )
    checkpoint_seconds: Annotated[float, _real(-1e-300, said="seconds, not below 0")] = _key(
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
            value = _plain(name, getattr(self, name))
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


def _plain(name: str, value: Any) -> Any:
    """As JSON and TOML can have it."""
    tables: dict[str, Mapping[str, type]] = {
        "local": LOCAL_RULES,
        "pace": PACES,
        "server": SERVER_RULES,
    }
    if name in tables:
        return {"name": "mean"} if value is None else to_table(value, tables[name])
    if name == "codecs":
        return {way: _codec_table(codec) for way, codec in value.items()}
    if name == "correction":
        if value is None:
            return {"name": "none"}
        return dict(vars(value)) if type(value) is Correction else {"name": name_of(value)}
    if name == "averaging_rule":
        value = Rule() if value is None else value
        return dict(vars(value)) if isinstance(value, Rule) else {"name": name_of(value)}
    if type(value) in RATES.values():
        value = value.eta
    elif isinstance(value, MatrixAverager):
        value = [list(row) for row in value.rows]
    elif isinstance(value, Schedule):
        value = dict(vars(value))
    elif isinstance(value, LatencyProfile):
        value = _named(value)
    elif isinstance(value, Scheme | Averager):
        value = value.name
    elif name == "flower" and value is not None:
        value = f"flower:{value if isinstance(value, str) else name_of(value)}"
    elif value == math.inf:
        value = None
    known = isinstance(value, int | float | str | bool | dict | list | None)
    return value if known else name_of(value)


def _named(profile: LatencyProfile) -> Any:
    """Its name where that says it all; else its table, which a reader can read back."""
    ours = profile.name in profile_names() and load_profile(profile.name) == profile
    return profile.name if ours else profile_table(profile)


def _codec_table(codec: Codec) -> Any:
    """Its name alone, where that says it all."""
    table = to_table(codec, CODECS)
    usual = table["name"] not in CODECS or codec == CODECS[table["name"]]()
    return table["name"] if usual else table


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
                "default": str(_plain(name, getattr(defaults, name))),
                "about": str(Settings.model_fields[name].description),
            }
            for name, key in Settings.keys().items()
        ),
    ]
