"""The configs of several runs, compared: what they share, what differs, what to call each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdfeel.records.reading import RunRecord
from sdfeel.reports.rendering import format_value

__all__ = ["compare_settings", "flatten", "group_runs", "setting_text"]

# What may differ between two seeds of one setting.
NOT_IDENTITY = {"seed", "out", "engine"}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Sections as dotted keys, `schedule.tau1`, which is how `--set` takes them."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def compare_settings(
    configs: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings that all runs share, and a row with the value of each run for those they don't.

    A reader of a comparison looks for what differs; among fifty equal settings it is hidden.
    """
    flat = {label: flatten(config) for label, config in configs.items()}
    keys = list(dict.fromkeys(key for config in flat.values() for key in config))
    shared: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for key in keys:
        values = [config.get(key) for config in flat.values()]
        if all(_same(value, values[0]) for value in values):
            shared[key] = values[0]
        else:
            rows.append(
                {"setting": key} | {label: config.get(key) for label, config in flat.items()}
            )
    return shared, rows


def setting_text(value: object) -> str:
    """As the file had it: settings are compared and copied, so no digit of them is rounded."""
    if isinstance(value, float | int | list | tuple) and not isinstance(value, bool):
        return str(value)
    return format_value(value)


def group_runs(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in nothing but their seed, under one label.

    The label is the scheme, with what sets the group apart from others of the same scheme.
    """
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(repr(sorted(_identity(record).items())), []).append(record)
    kinds = list(groups.values())
    labels: dict[str, list[RunRecord]] = {}
    for kind in kinds:
        mine = _identity(kind[0])
        rivals = [
            _identity(other[0])
            for other in kinds
            if other is not kind and other[0].scheme == kind[0].scheme
        ]
        apart = [
            key
            for key, value in mine.items()
            if any(not _same(rival.get(key), value) for rival in rivals)
        ]
        # How often a run was looked at says little about it, if something else does.
        telling = [key for key in apart if not key.startswith("evaluation.")] or apart
        label = ", ".join(
            [kind[0].scheme, *(f"{key.rsplit('.', 1)[-1]} {mine[key]}" for key in telling)]
        )
        # Settings that only a rival has leave nothing to say here: number what is left.
        unique, count = label, 2
        while unique in labels:
            unique, count = f"{label} ({count})", count + 1
        labels[unique] = kind
    return labels


def _identity(record: RunRecord) -> dict[str, Any]:
    flat = flatten(record.config)
    return {key: value for key, value in flat.items() if key.rsplit(".", 1)[-1] not in NOT_IDENTITY}


def _same(one: object, other: object) -> bool:
    # True == 1 in Python, but not in a config.
    return isinstance(one, bool) == isinstance(other, bool) and one == other
