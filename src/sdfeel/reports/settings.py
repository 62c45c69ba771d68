"""The configs of several runs, compared: what they share, what differs, what to call each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdfeel.records.folder import flatten
from sdfeel.records.reading import RunRecord
from sdfeel.reports.rendering import format_value

# What may differ between two seeds of one setting.
NOT_IDENTITY = {"seed", "out", "engine"}
Settings = Mapping[str, Any]


def compare_settings(
    configs: Mapping[str, Settings],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the settings that all runs share, and a row for each that they do not.

    A reader of a comparison looks for what differs; among fifty equal settings it is hidden.
    """
    flat = {label: flatten(config) for label, config in configs.items()}
    keys = list(dict.fromkeys(key for config in flat.values() for key in config))
    differing = _differing(list(flat.values()), keys)
    rows = [
        {"setting": key} | {label: config.get(key) for label, config in flat.items()}
        for key in differing
    ]
    first = next(iter(flat.values()), {})
    return {key: first[key] for key in keys if key not in differing}, rows


def setting_text(value: object) -> str:
    """Write a value as the file had it: settings are copied, so no digit of them is rounded."""
    if isinstance(value, float | int | list | tuple) and not isinstance(value, bool):
        return str(value)
    return format_value(value)


def group_runs(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Put runs that differ in nothing but their seed under one label.

    The label is the scheme, with what sets the group apart from others of the same scheme.
    """
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(repr(sorted(_identity(record).items())), []).append(record)
    labels: dict[str, list[RunRecord]] = {}
    for group in groups.values():
        scheme, mine = group[0].scheme, _identity(group[0])
        rivals = [of[0] for of in groups.values() if of is not group and of[0].scheme == scheme]
        apart = _differing([mine, *map(_identity, rivals)], list(mine))
        # How often a run was looked at says little about it, if something else does.
        telling = [key for key in apart if not key.startswith("evaluation.")] or apart
        label = ", ".join([scheme, *(f"{key.rsplit('.', 1)[-1]} {mine[key]}" for key in telling)])
        # Settings that only a rival has leave nothing to say here: number what is left.
        unique, count = label, 2
        while unique in labels:
            unique, count = f"{label} ({count})", count + 1
        labels[unique] = group
    return labels


def _identity(record: RunRecord) -> dict[str, Any]:
    flat = flatten(record.config)
    return {key: value for key, value in flat.items() if key.rsplit(".", 1)[-1] not in NOT_IDENTITY}


def _differing(configs: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """Return the keys whose values are not the same in all; True == 1 in Python, but not here."""
    first, *others = (
        {key: (type(c.get(key)) is bool, c.get(key)) for key in keys} for c in configs
    )
    return [key for key in keys if any(other[key] != first[key] for other in others)]
