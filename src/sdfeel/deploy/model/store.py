"""What an edge server must not lose: its model, the last finished period, what links remember.

One model file a period. It is written beside its place, flushed to the disk and renamed, and then
the folder is flushed: after `save` returns, a power cut leaves this period or a later one.

    period-000000042.safetensors    a checkpoint; its name says the period that is inside of it
    *.kept                          a large model that a link remembers
    *.damaged                       a checkpoint that could not be read; the one before it was taken
    *.undone                        a checkpoint that `sdfeel rollback` put aside
    lock                            held while an edge runs; says by whom
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import (
    Layout,
    ModelFile,
    check_vector,
    read_model,
    read_notes,
    read_safetensors,
    write_model,
    write_safetensors,
)
from sdfeel.deploy.model.vectors import KEPT, Change, OpenFile, Vector
from sdfeel.errors import InputError
from sdfeel.files import FileLock, flush_folder

__all__ = ["EdgeCheckpoint", "Store", "read_safetensors", "write_safetensors"]

KEEP = 2
DAMAGED, UNDONE = ".damaged", ".undone"
NAME = re.compile(r"period-(\d{9,15})\.safetensors")


@dataclass(frozen=True)
class EdgeCheckpoint:
    """A finished period: the server's model and what it must remember with it.

    agreement  what `agreement_notes.dump` says of the edge's links
    changes    what those notes are about, by place; None: lost in a power cut
    pace       what an edge without rounds counts
    rows       what methods remember of this server, as `method.row`
    """

    done: int
    model: Vector
    agreement: dict[str, Any] = field(default_factory=dict)
    changes: Sequence[Change | None] = ()
    pace: dict[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Vector] = field(default_factory=dict)


class Store:
    """The checkpoints of one edge in one folder.

    about    what must be the same in every checkpoint, such as the edge's name
    layout   names and shapes of the model
    history  how many older checkpoints are kept beside the last two, each about four times as
             many periods back as the one before it
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, str],
        layout: Layout | None = None,
        history: int = 6,
    ) -> None:
        self.folder = folder
        self.about = dict(about)
        self.layout = layout
        self.history = history
        self._lock = FileLock(folder / "lock")
        self._kept: dict[int, set[str]] = {}  # by period, the files that its checkpoint needs

    @classmethod
    def of(cls, deployment: Deployment, edge: str, folder: Path, first: ModelFile) -> Store:
        """An edge's own; a period has tau1 iterations, so its number means nothing with another."""
        about = {
            "deployment": deployment.name,
            "edge": edge,
            "schedule.tau1": str(deployment.schedule.tau1),
            "model.initial": first.vector.sha256.hex()[:16],
        }
        return cls(folder, about, first.layout, deployment.state.history)

    def acquire(self) -> None:
        """Takes the folder before anything in it is touched; InputError if somebody has it."""
        who = f"edge {self.about.get('edge', '')} (process {os.getpid()})"
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._lock.acquire(who)
        except BlockingIOError as problem:
            holder = problem.strerror or "another process"
            raise InputError(
                "state", str(self.folder), f"is in use by {holder}: stop it, or name another folder"
            ) from None
        except OSError as problem:
            raise InputError(
                "state", str(self.folder), f"must be a folder that can be written: {problem}"
            ) from None
        for leftover in self.folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)

    def release(self) -> None:
        self._lock.release()

    def save(self, checkpoint: EdgeCheckpoint) -> None:
        """Durable when it returns. Called beside the event loop: flushing takes its time.

        Large models that changes are about are not written again: their files get names.
        """
        inline: list[Change] = []
        table: list[Any] = []
        files: set[str] = set()
        needed = must_survive(checkpoint.agreement)
        for place, change in enumerate(checkpoint.changes):
            if change is None:
                table.append(None)
            elif all(vector.keep(self.folder) for vector in change.vectors):
                if place in needed:
                    for vector in change.vectors:
                        vector.flush()
                names = [vector.sha256.hex() for vector in change.vectors]
                files |= {name + KEPT for name in names}
                table.append(list(zip(names, change.weights, strict=True)))
            else:
                table.append(len(inline))
                inline.append(change)
        notes = {
            **self.about,
            "done": str(checkpoint.done),
            "agreement": json.dumps(checkpoint.agreement),
            "changes": json.dumps(table),
            "pace": json.dumps(checkpoint.pace),
        }
        layout = self.layout or Layout.flat(checkpoint.model.size)
        path, rows = self._path(checkpoint.done), checkpoint.rows
        write_model(path, layout, checkpoint.model, notes, inline, rows=rows)
        self._kept[checkpoint.done] = files
        self._tidy(checkpoint.done)

    def _path(self, period: int) -> Path:
        return self.folder / f"period-{period:09d}.safetensors"

    def periods(self) -> list[int]:
        """Of all checkpoints that are there, the oldest first."""
        matches = (NAME.fullmatch(path.name) for path in self.folder.glob("period-*"))
        return sorted(int(match[1]) for match in matches if match)

    def _tidy(self, done: int) -> None:
        """Removes what nobody will ask for again, also not after `roll_back`."""
        present = [period for period in self.periods() if period <= done]
        worth = worth_keeping(present, self.history)
        for period in set(present) - set(worth):
            self._path(period).unlink(missing_ok=True)
        self._kept = {period: self._kept_by(period) for period in worth}
        needed = set().union(*self._kept.values())
        for file in self.folder.glob(f"*{KEPT}"):
            if file.name not in needed:
                file.unlink(missing_ok=True)
        for aside in (*self.folder.glob(f"*{UNDONE}"), *self.folder.glob(f"*{DAMAGED}")):
            match = NAME.match(aside.name)
            if match is None or int(match[1]) <= done - KEEP:
                aside.unlink(missing_ok=True)

    def _kept_by(self, period: int) -> set[str]:
        """The models that a checkpoint does not hold itself; one of a former life is read once."""
        if period in self._kept:
            return self._kept[period]
        try:
            table = json.loads(read_notes(self._path(period))["changes"])
            return {name + KEPT for entry in table if isinstance(entry, list) for name, _ in entry}
        except (InputError, ValueError, KeyError, TypeError, RecursionError):
            return set()  # damaged: `load` will say so, should it ever be asked for

    def load(self, size: int | None) -> tuple[EdgeCheckpoint | None, list[str]]:
        """The newest checkpoint that is whole, and what was wrong with newer ones.

        Whoever holds the folder puts those aside, so that they are in nobody's way. What it goes on
        from must survive a power cut, for others will hear of it: the life before this one may have
        ended between renaming the file and flushing its name.
        """
        problems: list[str] = []
        for period in reversed(self.periods()):
            checkpoint = self.look(period, size, problems)
            if checkpoint is not None:
                if self._lock.is_held:
                    flush_folder(self.folder)
                return checkpoint, problems
            if self._lock.is_held:
                path = self._path(period)
                path.replace(path.with_name(path.name + DAMAGED))
        return None, problems

    def look(self, period: int, size: int | None, problems: list[str]) -> EdgeCheckpoint | None:
        """One checkpoint; None if it is not whole, and `problems` says why."""
        try:
            model_file = read_model(self._path(period), size)
            self._check_owner(model_file)
            return self._checkpoint(model_file, period, problems)
        except _Damaged as problem:
            problems.append(str(problem))
        except InputError as problem:
            if problem.field.startswith("state"):
                raise
            problems.append(str(problem))
        return None

    def _check_owner(self, model_file: ModelFile) -> None:
        for name, wanted in self.about.items():
            given = model_file.notes.get(name)
            if given != wanted:
                raise InputError(
                    f"state: {name}",
                    given,
                    f"{self.folder} belongs to another deployment: here it is {wanted!r}; "
                    "name another folder",
                )

    def _checkpoint(
        self, model_file: ModelFile, period: int, problems: list[str]
    ) -> EdgeCheckpoint:
        """What the notes say; they are sealed, so a mistake in them was written, not caused."""
        try:
            if int(model_file.notes["done"]) != period:
                raise ValueError(f"it says period {model_file.notes['done']}")
            agreement = json.loads(model_file.notes["agreement"])
            table = json.loads(model_file.notes["changes"])
            pace = json.loads(model_file.notes.get("pace", "{}"))
            kinds = [isinstance(notes, dict) for notes in (agreement, pace)]
            if not all(kinds) or not isinstance(table, list):
                raise ValueError("its notes are of another kind")
            changes = [
                self._change(entry, model_file.layout.size, model_file.changes, problems)
                for entry in table
            ]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as problem:
            path = self._path(period)
            raise _Damaged(f"checkpoint = {str(path)!r}: cannot be used: {problem}") from None
        return EdgeCheckpoint(period, model_file.vector, agreement, changes, pace, model_file.rows)

    def _change(
        self, entry: Any, size: int, inline: list[Vector], problems: list[str]
    ) -> Change | None:
        if entry is None:
            return None
        if isinstance(entry, int):
            return Change.of(inline[entry])
        vectors = []
        for name, _ in entry:
            if not re.fullmatch(r"[0-9a-f]{64}", name):
                raise ValueError("a model that a link remembers has no name")
            path = self.folder / (name + KEPT)
            try:
                file = OpenFile(os.open(path, os.O_RDONLY))
                if path.stat().st_size != 4 * size:
                    raise InputError("model file", str(path), "is cut short")
                vector = Vector(size, bytes.fromhex(name), None, file)
                check_vector(path, vector)
            except (OSError, InputError) as problem:
                problems.append(str(problem))
                return None
            vectors.append(vector)
        return Change(tuple(vectors), tuple(float(weight) for _, weight in entry))

    def roll_back(self, period: int) -> int:
        """Puts everything after `period` aside; the period that an edge goes on from now."""
        present = self.periods()
        older = [number for number in present if number <= period]
        if not older:
            raise InputError("period", period, f"there is {present or 'no checkpoint'}")
        for newer in present[len(older) :]:
            path = self._path(newer)
            path.replace(path.with_name(path.name + UNDONE))
        return older[-1]

    def prepare(self, period: int, model: Vector) -> None:
        """For `begin_from`: the checkpoint of a period with another model, and without anything
        that links remember.
        """
        model_file = read_model(self._path(period))
        notes = {**model_file.notes, "agreement": "{}", "changes": "[]"}
        write_model(self._prepared(period), model_file.layout, model, notes, rows=model_file.rows)

    def begin_from(self, period: int) -> None:
        """Put what was prepared in its place; what was there, and what is later, goes aside."""
        self.roll_back(period)
        path = self._path(period)
        with contextlib.suppress(FileExistsError):  # of a rollback before this one: it stays
            os.link(path, path.with_name(path.name + UNDONE))
        self._prepared(period).replace(path)

    def _prepared(self, period: int) -> Path:
        path = self._path(period)
        return path.with_name(path.name + ".prepared.tmp")


class _Damaged(Exception):  # noqa: N818 - never leaves this module
    """A checkpoint whose notes cannot be used."""


def must_survive(agreement: Mapping[str, Any]) -> set[int]:
    """Return the places of changes without which the mean may move.

    Owed ones are in no model yet. Open ones may have to be added or taken back, if a power cut ends
    both ends at once; without what both ends held before, only whole models travel next.
    """
    owed = {place for _, place in agreement.get("owed", ())}
    return owed | {row["change"] for row in agreement.get("open", ())}


def worth_keeping(periods: Sequence[int], history: int) -> list[int]:
    """Of ascending `periods`: the last two, and the oldest of every age from 4^n to 4^(n+1)."""
    worth = list(periods[-KEEP:])
    for level in range(history):
        ages = range(4**level, 4 ** (level + 1))
        worth += [period for period in periods if periods[-1] - period in ages][:1]
    return sorted(set(worth))
