"""The form of plan.json: what it holds by its keys, written and read with checks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sdfeel.errors import InputError
from sdfeel.planner.pilot_path import LossCurve, PathPoint
from sdfeel.planner.race import Objective

__all__ = ["PLAN", "VERSION", "PlanFile", "content_of", "curve_table", "finite", "point_of"]
__all__ += ["point_table"]

PLAN = "plan.json"
VERSION = 1
MAX_BYTES = 64 * 2**20
# Any number of a run is in here; arithmetic with others ends in infinities.
Amount = Annotated[float, Field(ge=0.0, le=1e15)]
Whole = Annotated[int, Field(ge=0, le=10**12)]


class _Loose(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _ObjectiveFile(_Loose):
    target: float | None = None
    budget: float | None = None
    accuracy: bool = False

    def objective(self) -> Objective:
        return Objective(self.target, self.budget, self.accuracy)


class _CurveFile(_Loose):
    iterations: list[Whole]
    seconds: list[Amount]
    losses: list[Amount]

    def curve(self, where: str) -> LossCurve:
        lengths = {len(self.iterations), len(self.seconds), len(self.losses)}
        if len(lengths) != 1 or not self.iterations:
            raise InputError(where, sorted(lengths), "as many iterations as seconds and losses")
        if any(b <= a for a, b in zip(self.iterations, self.iterations[1:], strict=False)):
            raise InputError(f"{where}.iterations", self.iterations[:5], "numbers that rise")
        return LossCurve(np.array(self.iterations), np.array(self.seconds), np.array(self.losses))


class _RacedFile(_CurveFile):
    label: str
    choice: dict[str, Whole | str]
    dropped_at: Amount | None = None


class _NetworkFile(_Loose):
    clusters: list[list[Whole]]
    links: list[tuple[Whole, Whole]]
    samples: list[Annotated[float, Field(ge=1e-6, le=1e12)]]


class PlanFile(_Loose):
    """What the file holds, by its keys."""

    version: int
    objective: _ObjectiveFile
    choice: dict[str, Whole | str]
    seconds: Amount
    loss: Amount
    reasons: list[str]
    ranking: list[dict[str, Any]]
    raced: list[_RacedFile]
    pilot: _CurveFile
    points: list[dict[str, Amount | dict[str, Amount]]]
    lr: Amount
    numbers: dict[str, Amount | None]
    network: _NetworkFile
    profile: dict[str, Any]
    parameters: Whole
    settings: dict[str, Any]


def content_of(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise InputError("plan", str(path), f"at most {MAX_BYTES} bytes")
        content = json.loads(text, parse_constant=_refused)
    except FileNotFoundError:
        raise InputError(
            "plan", str(path), "is not there; `sdfeel plan --out FOLDER` writes it"
        ) from None
    except OSError as problem:
        raise InputError("plan", str(path), f"cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError("plan", str(path), f"is damaged: {problem}") from None
    if not isinstance(content, dict):
        raise InputError("plan", str(path), "is damaged: it must hold one JSON object")
    return content


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def curve_table(curve: LossCurve) -> dict[str, list[Any]]:
    return {name: part.tolist() for name, part in vars(curve).items()}


def point_table(point: PathPoint) -> dict[str, Any]:
    """`owed` by way and codec: JSON has words for keys."""
    return vars(point) | {"owed": {" ".join(key): lack for key, lack in point.owed.items()}}


def point_of(table: Mapping[str, Any]) -> PathPoint:
    known = {field.name for field in fields(PathPoint)}
    owed, numbers = table.get("owed", {}), {k: v for k, v in table.items() if k != "owed"}
    if not isinstance(owed, Mapping) or not set(table) <= known:
        raise InputError("points", sorted(table), f"numbers by the names {sorted(known)}")
    if any(isinstance(value, Mapping) for value in numbers.values()):
        raise InputError("points", numbers, "numbers")
    by_way = {tuple(key.split(" ", 1)): float(lack) for key, lack in owed.items()}
    return PathPoint(**numbers, owed=by_way)


def finite(content: Any) -> Any:
    """JSON has no infinity and no NaN: null."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    if isinstance(content, np.generic):
        content = content.item()
    return None if isinstance(content, float) and not math.isfinite(content) else content
