"""Hostile inputs for every parser: what each reads, good examples to spoil, and the errors it may
raise. Used by `test_fuzz` (bounded) and by `benchmarks/fuzz.py` (as long as one likes).

An input is a function of (parser, seed, number). Most are good examples with bytes or tokens
changed, because random bytes never get past the first check.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import random
import re
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from google.protobuf.message import DecodeError
from harness import as_toml, content
from packings import PACKINGS

from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.clock import load_profile
from sdfeel.data.archives import ar_member, gunzip, tar_members
from sdfeel.data.registries import SourceError
from sdfeel.deploy.config import load_deployment
from sdfeel.deploy.model.files import read_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store
from sdfeel.deploy.model.vectors import Change, Vector, as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import AnyPacking, Packed, pack
from sdfeel.errors import InputError, RunError
from sdfeel.experiments.config import read_table, run_config, with_settings
from sdfeel.network import read_graph
from sdfeel.records import checkpoints
from sdfeel.records.reading import read_run

NAMED = (InputError, RunError, SourceError, Refused, DecodeError)
WORD = re.compile(rb"[A-Za-z0-9._+-]+")

# What numbers, names and brackets are replaced with.
TOKENS = [
    *(b"-1 0 -0 1.5 1e400 1e308 -inf inf nan Infinity NaN 4294967296 1_000 true null".split()),
    *(b"9223372036854775807 18446744073709551616 2024-99-99 00:00:61 folder options".split()),
    *(b'[] {} "" = # , [[ ]] /dev/full ../../x \\u0000 \\ud800'.split()),
    *(b"9" * 5000, b"-" + b"9" * 400, b"0x" + b"f" * 300),
    *(b"[" * 3000, b"{" * 3000, b"[" * 40 + b"]" * 40, b"a." * 2000 + b"a=1"),
    *(b"'''", b'"""', b"\x00", b"\x1b[31m", b"\xff\xfe", b"\xc3", b"\xe2\x80\xae", b"\n", b"\r"),
]


def spoil(data: bytes, draw: random.Random) -> bytes:
    """One to four changes: of a bit, a byte, a token, a piece; or a cut."""
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        place = draw.randrange(len(data) + 1)
        kind = draw.randrange(7)
        rest = data[place:]
        if kind == 0 and rest:
            data = data[:place] + bytes([rest[0] ^ (1 << draw.randrange(8))]) + rest[1:]
        elif kind == 1:
            data = data[:place] + draw.choice(TOKENS) + rest
        elif kind == 2:
            data = data[:place] + draw.choice(TOKENS) + rest[draw.randrange(12) :]
        elif kind == 3:
            data = data[:place] + rest[draw.randrange(20) :]
        elif kind == 4:
            piece = data[place : place + draw.randrange(40)]
            data = data[:place] + piece * draw.randrange(1, 4) + rest
        elif kind == 5 and len(data) > 1:
            data = _replace_word(data, draw)
        else:
            data = data[:place] if draw.random() < 0.2 else data
    return data[:200_000]


def _replace_word(data: bytes, draw: random.Random) -> bytes:
    """A number or a word as a whole: these get past the syntax, to what is made of it."""
    words = list(WORD.finditer(data))
    if not words:
        return data
    start, stop = draw.choice(words).span()
    return data[:start] + draw.choice(TOKENS) + data[stop:]


@dataclass
class Parser:
    """`parse(data)` returns, or raises one of NAMED; anything else is a violation."""

    name: str
    examples: list[bytes]
    parse: Callable[[bytes], object]
    count: int = 20_000
    respoil: Callable[[bytes, random.Random], bytes] = field(default=spoil)

    def inputs(self, seed: int) -> Iterator[tuple[int, bytes]]:
        for number in range(2**62):
            draw = random.Random(f"{self.name} {seed} {number}")  # noqa: S311 - no secrets
            yield number, self.respoil(draw.choice(self.examples), draw)

    def try_one(self, data: bytes) -> str | None:
        """None if all is well; else what escaped."""
        try:
            self.parse(data)
        except NAMED as problem:
            str(problem)  # the message can be shown, too
        except Exception as problem:
            return f"{type(problem).__name__}: {str(problem)[:200]}"
        return None


# Files with checksums: the changes go inside, and the sums are made right again.


def respoil_sealed(data: bytes, draw: random.Random) -> bytes:
    """A model file whose header is changed and sealed anew."""
    if draw.random() < 0.3:
        return spoil(data, draw)
    (length,) = struct.unpack("<Q", data[:8])
    text = spoil(data[8 : 8 + length], draw)
    try:
        seal = json.loads(text)["__metadata__"]["seal"]
        blank = text.replace(seal.encode(), b"0" * 64, 1)
        text = blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def respoil_checkpoint(data: bytes, draw: random.Random) -> bytes:
    """A checkpoint of a run: its notes are changed, and their sum is made right."""
    if draw.random() < 0.3:
        return spoil(data, draw)
    (length,) = struct.unpack("<Q", data[:8])
    table = json.loads(data[8 : 8 + length])
    found = torch.frombuffer(bytearray(data[8 + length :]), dtype=torch.uint8)
    text = spoil(table["__metadata__"]["sdfeel"].encode(), draw).decode("utf-8", "replace")
    tensors = {
        name: found[slice(*entry["data_offsets"])]
        .view({"F32": torch.float32, "F64": torch.float64}[entry["dtype"]])
        .view(entry["shape"])
        for name, entry in table.items()
        if name != "__metadata__"
    }
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().tobytes())
    table["__metadata__"] = {"sdfeel": text, "sha256": digest.hexdigest()}
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _file(
    folder: Path, name: str
) -> Callable[[Callable[[Path], object]], Callable[[bytes], object]]:
    """A parser of paths as a parser of bytes."""
    path = folder / name

    def wrap(parse: Callable[[Path], object]) -> Callable[[bytes], object]:
        def parse_bytes(data: bytes) -> object:
            path.write_bytes(data)
            return parse(path)

        return parse_bytes

    return wrap


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where there is such a place: a file on a disk costs more than reading it."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it is private
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def parsers(folder: Path) -> list[Parser]:
    """All of them; their files go to `folder`."""
    return [
        deployment_file(folder),
        store(folder),
        model_file(folder),
        run_file(folder),
        setting(),
        profile(folder),
        graph_file(folder),
        checkpoint(folder),
        ar_archive(folder),
        tar_archive(),
        gzip_file(),
        wire_messages(),
        run_folder(folder),
    ]


def deployment_file(folder: Path) -> Parser:
    small = content((1, 1), averager="chebyshev")
    full = content((2, 1, 1), links=[("a", "b"), ("b", "c")], security={"plaintext": True})
    full["codecs"] = {"up": "int8", "down": "float16", "between": "float32"}
    full["rate"] = {"name": "cosine", "over": 9, "floor": 0.001, "warmup": 2}
    full["local"] |= {"name": "momentum", "momentum": 0.5, "clip": 1.5, "memory": "keep"}
    full["edges"][0] |= {"listen": "127.0.0.1:1", "metrics": "127.0.0.1:2", "allow": ["c0"]}
    free = content((1, 2), pace={"name": "asynchronous", "deadline": [0.5, 2.0], "anneal": 3.0})
    examples = [as_toml(table).encode() for table in (small, full, free)]
    parse = _file(folder, "deployment.toml")(lambda path: Topology(load_deployment(path)))
    return Parser("deployment file", examples, parse, 12_000)


def _saved(folder: Path) -> tuple[Store, bytes]:
    made = Store(folder / "store", {"edge": "a"})
    made.acquire()
    vector = as_vector(np.arange(4, dtype=np.float32))
    agreement = {"checkpoint": 3, "open": [], "settled": [["b", 5, 0, 7, 2]], "owed": [["b", 0]]}
    made.save(EdgeCheckpoint(5, vector, agreement, [Change((vector,), (0.5,)), None]))
    made.release()
    return made, (folder / "store" / "period-000000005.safetensors").read_bytes()


def store(folder: Path) -> Parser:
    """It never raises, but says what was wrong and goes to the one before."""
    made, example = _saved(folder)
    path = folder / "store" / "period-000000005.safetensors"

    def parse(data: bytes) -> object:
        path.write_bytes(data)
        return made.load(4)

    return Parser("store", [example], parse, 20_000, respoil=respoil_sealed)


def model_file(folder: Path) -> Parser:
    _, example = _saved(folder)
    parse = _file(folder, "m.safetensors")(lambda path: read_model(path, constants=True))
    return Parser("model file", [example], parse, 20_000, respoil=respoil_sealed)


RUN = b"""
title = "x"
scheme = "sd-feel"
steps = 100
lr = 0.1
[network]
graph = "small-world"
servers = 6
clients_per_server = [1, 2, 1, 1, 1, 1]
options = { degree = 4.0, rewire = 0.1, seed = 2 }
[schedule]
tau1 = 2
participation = 0.5
[evaluation]
every = 10
"""

METHODS = b"""
scheme = "fedbuff"
steps = 100
until = 5.5
lr = 0.1
rate = {name = "cosine", over = 9, floor = 0.01, warmup = 2}
optimizer = {name = "momentum", momentum = 0.5, nesterov = true, clip = 1.5, memory = "keep"}
server_optimizer = {name = "fedadam", eta = 0.1, beta1 = 0.5}
averaging_rule = {name = "trimmed", trim = 0.3}
correction = {name = "two-level", gamma = 0.5}
codecs = {up = {name = "top-k", k = 3}, down = "int8"}
pace = {name = "fedbuff", size = 3, rate = 0.5}
"""


def run_file(folder: Path) -> Parser:
    parse = _file(folder, "run.toml")(lambda path: run_config(read_table(str(path))))
    return Parser("run file", [RUN, METHODS], parse, 12_000)


def setting() -> Parser:
    examples = [b"schedule.tau1=3", b"network.clusters=[[0, 1], [2]]", b"title=words", b"lr=1e-3"]

    def parse(data: bytes) -> object:
        return run_config(with_settings({}, [data.decode("utf-8", "surrogateescape")]))

    return Parser("--set", examples, parse)


PROFILE = b"""
flops_per_step = 1e6
bits_per_parameter = 32
cloud_uplink = "direct"
[rates]
cpu = [1e9, 2e9]
client_server = 5e6
server_server = 50e6
server_cloud = 5e6
client_cloud = 1e6
[links]
"0-1" = 10e6
"""


def profile(folder: Path) -> Parser:
    parse = _file(folder, "profile.toml")(lambda path: load_profile(str(path)))
    return Parser("latency profile", [PROFILE], parse, 8_000)


def graph_file(folder: Path) -> Parser:
    examples = [b"# a ring\n0 1\n1 2 # a comment\n2 0\n", b"0 1\r\n1 2\r\n2 3\r\n"]
    return Parser("graph file", examples, _file(folder, "graph.txt")(read_graph))


def checkpoint(folder: Path) -> Parser:
    path = folder / "checkpoint.safetensors"
    tensors = {"servers.model": torch.zeros(2, 3), "clients.up.residual": torch.ones(2, 3)}
    tensors["servers.aside"] = torch.zeros(2, 3, dtype=torch.float64)
    rows = [{"iteration": 0.0, "train_loss": 1.0}]
    good = checkpoints.Checkpoint(3, 2, 1.5, tensors, rows, 0.5, 3, 0.25)
    checkpoints.write_checkpoint(path, good, "run", "reference")
    parse = _file(folder, path.name)(lambda path: checkpoints.read_checkpoint(path, None))
    return Parser("checkpoint", [path.read_bytes()], parse, 12_000, respoil_checkpoint)


def ar_archive(folder: Path) -> Parser:
    def member(name: bytes, data: bytes) -> bytes:
        size = str(len(data)).encode()
        return name.ljust(48) + size.ljust(10) + b"`\n" + data + b"\n" * (len(data) % 2)

    example = b"!<arch>\n" + member(b"debian-binary", b"2.0\n") + member(b"data.tar", b"x" * 99)
    parse = _file(folder, "a.deb")(lambda path: ar_member(path, "data", 1000))
    return Parser("ar archive", [example], parse)


def _tar(mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name in ("./a", "b"):
            entry = tarfile.TarInfo(name)
            entry.size = 600
            entry.pax_headers = {"comment": "x"}
            tar.addfile(entry, io.BytesIO(b"0" * 600))
    return out.getvalue()


def tar_archive() -> Parser:
    def parse(data: bytes) -> object:
        return list(tar_members(io.BytesIO(data), {"a": 1000, "b": 1000}))

    examples = [_tar("w"), _tar("w:gz"), _tar("w:xz"), _tar("w:bz2")]
    return Parser("tar archive", examples, parse, 8_000)


def gzip_file() -> Parser:
    return Parser(
        "gzip file", [gzip.compress(b"0" * 500, mtime=0)], lambda d: gunzip(io.BytesIO(d), 1000)
    )


def _change(packing: AnyPacking, of: Vector) -> Packed:
    packed = Packed(packing, of.size, of.sha256)
    list(pack(packing, of.read, packed, Draw(0, np.array([0]), 1)))
    return packed


KINDS = (v1.FromClient, v1.FromEdge, v1.LinkMessage, v1.StatusRequest, v1.StatusReply)


def wire_messages() -> Parser:
    """Any message as any other; models on their way in."""
    vector = as_vector(np.arange(4, dtype=np.float32))
    announced = frames.header(vector, 3, samples=5)
    chunk = v1.Chunk(offset=0, data=vector.read_bytes(0, 4))
    task = v1.Task(period=1, first=1, steps=2, model=announced)
    changes = {name: _change(packing, vector) for name, packing in PACKINGS.items()}
    state = v1.LinkState(edge="a", number=3, up=["b"])
    examples = [
        v1.FromClient(hello=v1.Hello(protocol=1, name="c0", samples=3)),
        v1.FromClient(model=announced),
        v1.FromClient(chunk=chunk),
        v1.FromEdge(task=task),
        v1.FromEdge(row=v1.Row(name="y", model=announced)),
        v1.FromEdge(receipt=v1.Receipt(period=1, reason="why")),
        v1.LinkMessage(model=announced),
        v1.LinkMessage(decision=v1.Decision(period=1, word=v1.Word.COMMIT)),
        v1.LinkMessage(state=state),
        v1.StatusReply(edge="a", clients=["c0"], seconds_per_period=0.5),
        *(v1.FromClient(model=frames.header(change, 3, samples=5)) for change in changes.values()),
        *(v1.FromClient(chunk=v1.Chunk(data=c.read_bytes(0, 4))) for c in changes.values()),
    ]

    def parse(data: bytes) -> object:
        for kind in KINDS:
            try:
                message = kind.FromString(data)
            except DecodeError:
                continue
            str(message)
            if "model" in message.DESCRIPTOR.fields_by_name and message.HasField("model"):
                with contextlib.suppress(Refused):
                    frames.Incoming(message.model, 4, 1e9).begin()
                    frames.Incoming(message.model, 4, 1e9).feed(chunk)
                if packing := PACKINGS.get(message.model.dtype):
                    frames.Incoming(message.model, 4, 1e9, None, vector, packing).begin()
            if "chunk" in message.DESCRIPTOR.fields_by_name and message.HasField("chunk"):
                with contextlib.suppress(Refused):
                    frames.Incoming(announced, 4, 1e9).feed(message.chunk)
                for name, change in changes.items():
                    about = frames.header(change, 3)
                    with contextlib.suppress(Refused):
                        frames.Incoming(about, 4, 1e9, None, vector, PACKINGS[name]).feed(
                            message.chunk
                        )
        return None

    return Parser("wire", [message.SerializeToString() for message in examples], parse)


def run_folder(folder: Path) -> Parser:
    """One file of the folder at a time."""
    place = folder / "run"
    place.mkdir(exist_ok=True)
    good = {
        "run.json": b'{"scheme": "sd-feel", "schedule": {"tau1": 2}}',
        "environment.json": b'{"seed": 0}',
        "metrics.csv": b"iteration,seconds,train_loss\n0,0.0,2.3\n50,1.5,\n100,3.0,nan\n",
        "summary.json": b'{"iteration": 100}',
    }
    for name, data in good.items():
        (place / name).write_bytes(data)

    def parse(data: bytes) -> object:
        number, _, rest = data.partition(b"|")
        name = list(good)[int(number)]
        (place / name).write_bytes(rest)
        try:
            return read_run(place)
        finally:
            (place / name).write_bytes(good[name])

    def respoil(data: bytes, draw: random.Random) -> bytes:
        number, _, rest = data.partition(b"|")
        return number + b"|" + spoil(rest, draw)

    examples = [f"{number}|".encode() + data for number, data in enumerate(good.values())]
    return Parser("run folder", examples, parse, 1_500, respoil)
