"""LEAF's JSON: the users of a folder as clients, and clusters by groups of users.

A file has `users`, `user_data` with `x` and `y` of each, and may have `num_samples` and
`hierarchies`, a group for each user. Nothing in it is trusted: every mistake is named with its
file and user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.data.clients import ClientData
from sdfeel.errors import InputError
from sdfeel.validation import whole_number

# The letters that LEAF numbers, in its order: what its Shakespeare is made of.
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
MOST_BYTES = 4 * 2**30  # of a file: it is read whole


@dataclass(frozen=True)
class _User:
    """A user with samples, and the group that the file says, if it does."""

    name: str
    inputs: NDArray[Any]
    targets: NDArray[Any]
    group: str | None


def from_leaf(folder: str | Path, *, shape: Sequence[int] | None = None) -> ClientData:
    """Take a folder of LEAF: a client for each user, in sorted order of their names.

    Args:
        folder: with JSON files, such as `data/train` of one of LEAF's datasets.
        shape: of a sample's inputs, such as (1, 28, 28) for FEMNIST; as they lie there by default.
            Texts become the numbers of their letters.

    Returns:
        The clients' data; `leaf_clusters` puts the same clients together.

    Example:
        >>> import json, pathlib, tempfile
        >>> from sdfeel.data import from_leaf
        >>> of = {"ann": {"x": [[0.5, 1.0]], "y": [1]}, "bob": {"x": [[0, 1], [1, 1]], "y": [0, 1]}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = json.dumps({"users": ["bob", "ann"], "user_data": of})
        ...     _ = pathlib.Path(folder, "train.json").write_text(text)
        ...     print(from_leaf(folder).samples)
        [1 2]
    """
    users = _users(Path(folder))
    shapes = {user.inputs.shape[1:] for user in users}
    if shape is not None:
        wanted = tuple(whole_number(size, field="shape") for size in shape)
        sizes = {int(np.prod(each)) for each in shapes}
        if sizes != {int(np.prod(wanted))}:
            raise InputError("shape", list(wanted), f"samples have {sorted(sizes)} numbers")
        return ClientData.from_datasets(
            [(user.inputs.reshape(-1, *wanted), user.targets) for user in users]
        )
    return ClientData.from_datasets([(user.inputs, user.targets) for user in users])


def leaf_clusters(folder: str | Path, servers: int) -> list[list[int]]:
    """Return clusters of the clients of `from_leaf`: users of one group have one server.

    Groups are those of the files (`hierarchies`); a user without one is a group. The largest goes
    first, each to the server with the fewest samples so far.

    Args:
        folder: as for `from_leaf`.
        servers: how many, at most as many as there are groups.

    Example:
        >>> import json, pathlib, tempfile
        >>> from sdfeel.data import leaf_clusters
        >>> of = {name: {"x": [[0.5]], "y": [1]} for name in ("ann", "bob", "cid")}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     told = {"users": [*of], "user_data": of, "hierarchies": ["hill", "sea", "hill"]}
        ...     _ = pathlib.Path(folder, "train.json").write_text(json.dumps(told))
        ...     print(leaf_clusters(folder, servers=2))
        [[0, 2], [1]]
    """
    servers = whole_number(servers, field="servers")
    members: dict[tuple[bool, str], list[int]] = {}
    users = _users(Path(folder))
    for client, user in enumerate(users):
        is_alone = user.group is None
        members.setdefault((is_alone, user.name if is_alone else str(user.group)), []).append(
            client
        )
    if servers > len(members):
        raise InputError("servers", servers, f"there are {len(members)} groups of users")
    samples = {key: sum(len(users[i].targets) for i in group) for key, group in members.items()}
    clusters: list[list[int]] = [[] for _ in range(servers)]
    counts = [0] * servers
    for key in sorted(members, key=lambda each: (-samples[each], each)):
        # An empty server comes before one with samples, as every server needs a client.
        place = min(range(servers), key=lambda d: (counts[d], d))
        clusters[place] += members[key]
        counts[place] += samples[key]
    return [sorted(cluster) for cluster in clusters]


def _users(folder: Path) -> list[_User]:
    """Read all users of a folder, in sorted order."""
    if not folder.is_dir():
        raise InputError("folder", str(folder), "a folder with LEAF's JSON files")
    files = sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.is_file())
    if not files:
        raise InputError("folder", str(folder), "has no .json file; LEAF writes train/*.json")
    users: dict[str, _User] = {}
    for path in files:
        for user in _of_file(path):
            if user.name in users:
                raise InputError(f"{path.name}: users", user.name, "stands in two places")
            users[user.name] = user
    return _of_one_kind([users[name] for name in sorted(users)])


def _of_one_kind(users: list[_User]) -> list[_User]:
    """Return numbers as real ones for all if they are for one: 0 and 1 may stand as 0.0 and 1."""
    for field in ("inputs", "targets"):
        if any(getattr(user, field).dtype == np.float32 for user in users):
            users = [
                replace(user, **{field: getattr(user, field).astype(np.float32)}) for user in users
            ]
    return users


def _of_file(path: Path) -> Iterator[_User]:
    content = _parsed(path)
    names, data = content.get("users"), content.get("user_data")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path.name}: users", type(names).__name__, "a list of names")
    if not isinstance(data, dict):
        raise InputError(f"{path.name}: user_data", type(data).__name__, "x and y of each user")
    groups = content.get("hierarchies")
    if groups is not None and (not isinstance(groups, list) or len(groups) != len(names)):
        raise InputError(f"{path.name}: hierarchies", groups, "a group for each user")
    counts = content.get("num_samples")
    if counts is not None and (not isinstance(counts, list) or len(counts) != len(names)):
        raise InputError(f"{path.name}: num_samples", counts, "a number for each user")
    for place, name in enumerate(names):
        field = f"{path.name}: user {name[:40]!r}"
        table = data.get(name)
        if not isinstance(table, dict) or not isinstance(table.get("x"), list):
            raise InputError(field, None if table is None else "without x", "x and y of the user")
        inputs, targets = (
            _numbers(f"{field}, x", table["x"]),
            _numbers(f"{field}, y", table.get("y")),
        )
        if len(inputs) != len(targets) or not len(inputs):
            raise InputError(field, len(targets), f"as many y as x, of which it has {len(inputs)}")
        if counts is not None and counts[place] != len(inputs):
            remedy = f"num_samples says {counts[place]!r}: the file was cut or changed"
            raise InputError(field, len(inputs), remedy)
        group = None if groups is None else _group(field, groups[place])
        yield _User(name, inputs, targets, group)


def _parsed(path: Path) -> dict[str, Any]:
    """Read JSON whose outermost value is an object."""
    if path.stat().st_size > MOST_BYTES:
        raise InputError(path.name, path.stat().st_size, f"at most {MOST_BYTES} bytes")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InputError(path.name, reason[:100], "must be JSON as LEAF writes it") from None
    if not isinstance(content, dict):
        raise InputError(path.name, type(content).__name__, "an object with users and user_data")
    return content


def _group(field: str, value: Any) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{field}, hierarchies", value, "the name of a group")


def _numbers(field: str, values: Any) -> NDArray[Any]:
    """Return numbers as an array: float32 or int64; of texts the numbers of their letters."""
    if not isinstance(values, list) or not values:
        raise InputError(field, type(values).__name__, "a list with an entry for each sample")
    if all(isinstance(value, str) for value in values):
        return _letters(field, values)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # lists of several lengths, or numbers beyond all bounds
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or array.ndim == 0:
        raise InputError(field, "no table of numbers", "samples of one shape, numbers or texts")
    if array.dtype.kind == "f":
        array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise InputError(field, "not finite", "numbers that are finite")
        return array
    if array.dtype.kind == "u":
        raise InputError(field, int(array.max()), "whole numbers below 2^63")
    return array.astype(np.int64)


def _letters(field: str, texts: Sequence[str]) -> NDArray[np.int64]:
    lengths = {len(text) for text in texts}
    if len(lengths) > 1 or 0 in lengths:
        raise InputError(field, sorted(lengths)[:5], "texts of one length")
    known = {letter: number for number, letter in enumerate(LETTERS)}
    unknown = sorted({letter for text in texts for letter in text} - known.keys())
    if unknown:
        raise InputError(field, unknown[0], f"only the {len(LETTERS)} letters of LEAF")
    table = np.array([[known[letter] for letter in text] for text in texts], dtype=np.int64)
    return table[:, 0] if table.shape[1] == 1 else table
