"""What a setting takes: a name, an object, or the table of a file; and how a file has it back.

Whatever is wrong is an InputError with what would be right.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

from sdfeel.algorithm.averaging import RULES, AveragingRule, Rule
from sdfeel.algorithm.codecs import CODECS, Codec, codecs_of
from sdfeel.algorithm.correction import CORRECTIONS, Correction, correction_of
from sdfeel.algorithm.local import LOCAL_RULES, LocalRule, local_rule
from sdfeel.algorithm.pace import Pace
from sdfeel.algorithm.paces import PACES, pace_of
from sdfeel.algorithm.rates import RATES, Constant, Rate, rate_of
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES, Scheme
from sdfeel.algorithm.server_rule import SERVER_RULES, ServerRule, server_rule
from sdfeel.clock import LatencyProfile, load_profile, profile_names, profile_of, profile_table
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, Averager, Builder, MatrixAverager
from sdfeel.simulation.named import from_table, name_of, to_table

__all__ = [
    "AppField", "AveragerField", "AveragingRuleField", "CodecsField", "ConfigField",
    "CorrectionField", "Count", "LocalField", "PaceField", "ProfileField", "RateField",
    "ScheduleField", "SchemeField", "ServerField", "plain", "real", "whole",
]  # fmt: skip


def whole(least: int, most: float = math.inf, said: str = "") -> BeforeValidator:
    """A whole number from `least` to `most`."""

    def check(value: Any) -> int:
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not is_whole or not least <= value <= most:
            raise InputError("", value, said or f"a whole number, at least {least}")
        return int(value)

    return BeforeValidator(check)


def real(above: float, most: float = math.inf, said: str = "") -> BeforeValidator:
    """A number above `above`, up to `most`."""

    def check(value: Any) -> float:
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_real or not above < value <= most:
            raise InputError("", value, said or f"a number above {above:g}")
        return float(value)

    return BeforeValidator(check)


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
    try:
        schedule: Schedule = from_table("schedule", value, {"schedule": Schedule})
    except InputError as problem:
        field = f"schedule.{problem.field.removeprefix('schedule.')}"
        raise InputError(field, problem.value, problem.remedy) from None
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


Count = Annotated[int, whole(1)]
AppField = Annotated[Any, PlainValidator(_app)]
AveragerField = Annotated[str | Averager | Builder, PlainValidator(_averager)]
AveragingRuleField = Annotated[AveragingRule | None, PlainValidator(_averaging_rule)]
CodecsField = Annotated[Mapping[str, Codec], PlainValidator(_codecs)]
ConfigField = Annotated[Mapping[str, Any], PlainValidator(_config)]
CorrectionField = Annotated[Correction | None, PlainValidator(_correction)]
LocalField = Annotated[LocalRule, _table_or(local_rule, "local", LOCAL_RULES)]
PaceField = Annotated[Pace, _table_or(pace_of, "pace", PACES)]
ProfileField = Annotated[str | Path | Mapping[str, Any] | LatencyProfile, PlainValidator(_profile)]
RateField = Annotated[Rate, PlainValidator(_rate)]
ScheduleField = Annotated[Schedule, PlainValidator(_schedule)]
SchemeField = Annotated[str | Scheme, PlainValidator(_scheme)]
ServerField = Annotated[ServerRule | None, PlainValidator(_server)]


def plain(name: str, value: Any) -> Any:
    """The value of the setting `name`, as JSON and TOML can have it."""
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
