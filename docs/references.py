"""Reference pages that follow from the code: `python docs/references.py`, and `--check` for CI.

cli.md from the commands, settings.md from the settings of a run, deployment_file.md from the tables
of a deployment, profiles.md from the profiles of the package, reference.md from the public names.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import sdfeel
from sdfeel.algorithm.methods.codecs import Codec, codec_table
from sdfeel.clock import load_profile, profile_names

DOCS = Path(__file__).parent
MADE = "<!-- made by docs/references.py -->\n\n"


# The command line.

CLI_HEAD = """# The command line

Every command says the same with `--help`. With `--json` a command prints JSON instead of text. The
status is 0, or 1 if a run could not go on, 2 for a mistake in the call or a file, 130 after Ctrl-C.

**Completion.** `sdfeel --install-completion` teaches bash, zsh or fish to complete commands and
options; open a new terminal afterwards. `sdfeel --show-completion` prints the script instead.
"""


def cli() -> str:
    """Return the page of the commands, one section each."""
    import typer

    from sdfeel.cli import app

    parts = [CLI_HEAD]
    for words, command in _commands(typer.main.get_command(app), ["sdfeel"]):
        parts.append(f"## {' '.join(words)}\n\n{_paragraphs(command.help or '')}\n")
        lines = [
            f"- `{_name(parameter)}`: {' '.join(parameter.help.split())}{_default(parameter)}"
            for parameter in _parameters(command)
            if getattr(parameter, "help", None) and "--json" not in parameter.opts
        ]
        if lines:
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _commands(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield words, command
        return
    for name, child in children.items():
        if not child.hidden:
            yield from _commands(child, [*words, name])


def _parameters(command: Any) -> list[Any]:
    return [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    flag = "/".join(parameter.opts)
    kind = parameter.metavar or str(parameter.type.name).upper()
    return flag if parameter.is_flag else f"{flag} {kind}"


def _default(parameter: Any) -> str:
    value = parameter.default
    is_plain = isinstance(value, str | int | float | Path) and not isinstance(value, bool)
    return f" Default: `{value}`." if is_plain and str(value) else ""


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


# The files.

SETTINGS_HEAD = """# The run file

Every key of a run's TOML file, with its default. `sdfeel run FILE` reads it, `--set KEY=VALUE`
changes a key, and `sdfeel.train` takes the same under the name in brackets.
[Runs and comparisons](simulate.md) has a whole file with comments.

Beside these a file has `[network]` (`graph`, `graph_file` or `graphs`; `servers` and
`clients_per_server`, or `clusters`; `clients_graph`), `[data]` (`name`, `partition`,
`concentration`, `arguments`), `[model]` (`name`, `loss`, `arguments`, `seed`) and, for
`sdfeel compare`, `[[variant]]` (`label`, `set`).
"""


def settings() -> str:
    """Return the page of the settings of a run."""
    from sdfeel.simulation.settings import reference

    rows = (
        f"- `{row['key']} = {_toml(row['default'])}`"
        + (f" (`{row['argument']}=`)" if row["argument"] != row["key"] else "")
        + f": {row['about']}"
        for row in reference()
    )
    return SETTINGS_HEAD + "\n" + "\n".join(rows) + "\n"


def _toml(text: str) -> str:
    """Write a default of Python as a file would have it."""
    text = {"True": "true", "False": "false", "None": "(none)"}.get(text, text)
    text = re.sub(r"'(\w+)': ", r"\1 = ", text).replace("'", '"')
    text = re.sub(r", \w+ = None", "", text)
    is_word = re.fullmatch(r"[a-z][\w-]*", text) and text not in ("true", "false")
    return f'"{text}"' if is_word else text


DEPLOYMENT_HEAD = """# The deployment file

One TOML file that every node of a deployment reads. A key that does not exist is refused with the
nearest one that does. [Deploying](deployment.md) has a whole file with comments.
"""


def deployment_file() -> str:
    """Return the page of the tables of a deployment file."""
    from sdfeel.deploy.config import Client, Deployment, Edge

    listed = {"edges": Edge, "clients": Client}
    parts, tables = [DEPLOYMENT_HEAD, "## Top level\n"], []
    for name, field in Deployment.model_fields.items():
        kind = field.annotation
        if name in listed:
            tables.append((f"[[{name}]]", listed[name]))
        elif inspect.isclass(kind) and issubclass(kind, BaseModel):
            tables.append((f"[{name}]", kind))
        elif name in ALIKE:
            tables.append((f"[{name}]", ALIKE[name]))
        elif not field.exclude:
            parts.append(f"- `{name}`{_given(field)}{_about(name, field)}")
    for title, table in tables:
        if isinstance(table, str):
            parts.append(f"\n## {title}\n\n{table}")
            continue
        text = inspect.cleandoc(table.__doc__ or "")
        parts.append(f"\n## {title}\n\n{_paragraphs(ROW.split(text)[0])}\n")
        about = {key: " ".join(meaning.split()) for key, meaning in ROW.findall(text)}
        parts += [
            f"- `{name}`{_given(field)}{_about(name, field, about)}"
            for name, field in table.model_fields.items()
        ]
    return "\n".join(parts) + "\n"


ROW = re.compile(r"^(\w+)  +(\S.*(?:\n  +.*)*)", re.MULTILINE)  # of a table in a docstring
ALIKE = {
    "pace": "As `pace` of a [run file](settings.md): `name` is synchronous or asynchronous.",
    "server_optimizer": "As in a [run file](settings.md): `name` and its settings.",
    "correction": "As in a [run file](settings.md): `name` and its settings.",
    "rate": "The shape of `local.lr`, as in a [run file](settings.md).",
}
# What the name of a key does not say. A description in the code comes first.
ABOUT = {
    "name": "lower-case letters, digits and hyphens",
    "seed": "of batches and everything else that is random",
    "iterations": "K, of the whole run",
    "tau1": "iterations between two uploads",
    "tau2": "uploads between two exchanges",
    "alpha": "sendings of models in an exchange",
    "averager": "how edges agree, as `averager` of a run",
    "limit": "of `clip`: the largest length of an update",
    "trim": "of `trimmed`: the share cut off at each end",
    "factor": "of `history-clip`: times what was learned",
    "lr": "the rate eta",
    "batch_size": "samples of a mini-batch",
    "loss": "import path of the loss",
    "node_config": "of Flower apps",
    "train_config": "of Flower apps: what goes with every message",
    "up": "codec from clients to their edge",
    "down": "codec from an edge to its clients",
    "between": "codec between edges",
    "every": "iterations between two evaluations; by default a twentieth of the run",
    "trust": "edges: you vouch for all; members: one may lie, and some averagers are refused",
    "audit": "log what the weighted mean was made of, so that it can be added up again",
    "initial": "the first model, a safetensors file",
    "kind": "a graph by name, if there are no links",
    "links": 'pairs of edges: `[["north", "south"]]`',
    "address": "host:port, where others reach it",
    "listen": "host:port, where it listens; the address",
    "metrics": "of an edge: host:port for Prometheus. Of `[local]`: metrics by name",
    "allow": "clients that may come as guests; all",
    "fallbacks": "edges to which the client goes if its own is lost",
    "edge": "its home",
    "plaintext": "without TLS, for trials on one machine",
    "folder": "where certificates lie",
    "options": "arguments of the functions",
    "trainer": "import path of what trains",
    "model": "import path of a function that returns the module",
    "data": "import path of a function that returns a client's dataset",
    "rule": "mean, clip, trimmed, median, history-clip, or an import path",
}


def _given(field: Any) -> str:
    if field.is_required():
        return " (required)"
    default = field.default
    if default is PydanticUndefined or default is None or default in ("", {}):
        return ""
    default = codec_table(default) if isinstance(default, Codec) else default
    default = str(default) if isinstance(default, Path) else default
    return f" (`{_toml(str(default))}`)"


def _about(name: str, field: Any, about: Mapping[str, str] = {}) -> str:
    text = field.description or about.get(name) or ABOUT.get(name, "")
    return f": {text}" if text else ""


PROFILES_HEAD = """# Profiles

A latency profile says how fast devices and links are; the clock makes simulated seconds of it.
`--set clock.profile=NAME` takes one of these or the path of a TOML file, `sdfeel.train(profile=)`
also a dict with the same keys.
"""
PROFILE_KEYS = """## Keys of a file

- `flops_per_step` (required): FLOPs of one local iteration, or `"counted"`
- `bits_per_parameter` (32): bits that a number takes on the way
- `seconds_per_message` (0): added to every message, whatever its length
- `cloud_uplink` (`"direct"`): or `"shared-backhaul"`: a server's clients share its way to the cloud
- `[rates]`: `cpu` in FLOP/s; `client_server`, `server_server`, `server_cloud`, `client_cloud` in
  bit/s (all required); `server_client` and `cloud_client` for the way down, free if they are
  missing. One number for all, or a list with one for each client or server.
- `[links]`: a rate of its own for one link between servers, `"0-1" = 10e6`
- `[devices]` and `[availability]`: [unequal devices](asynchrony.md#devices)

The file of the profile `paper`:
"""


def profiles() -> str:
    """Return the page of the profiles that come with sdfeel."""
    rows = [f"- `{name}`: {load_profile(name).summary}" for name in profile_names()]
    text = (resources.files("sdfeel.clock") / "profiles" / "paper.toml").read_text("utf-8")
    tomllib.loads(text)
    return "\n".join([PROFILES_HEAD, *rows, "", PROFILE_KEYS, f"```toml\n{text}```"]) + "\n"


# The public names.

REFERENCE_HEAD = """# Python reference

Every public name, with an example that runs. On the built site the arguments follow each name;
in Python, `help(sdfeel.train)` prints the same. The settings of `sdfeel.train` are those of the
[run file](settings.md). Functions that bring data in are in [`sdfeel.data`](data.md), callbacks in
[`sdfeel.callbacks`](simulate.md#callbacks).

The examples begin with this:

```python
import numpy as np
import torch

import sdfeel

rng = np.random.default_rng(0)
model = torch.nn.Linear(4, 2)
data = [(rng.normal(size=(20, 4)).astype("float32"), rng.integers(0, 2, 20)) for _ in range(6)]
network = sdfeel.Network.ring(servers=2, clients_per_server=3)
```
"""
KINDS = ("Functions", "Classes", "Tables", "Errors")
TABLE_EXAMPLES = {
    "AVERAGERS": ("how servers agree", ">>> 'chebyshev' in sdfeel.AVERAGERS\nTrue"),
    "CODECS": ("what travels", ">>> sdfeel.CODECS['int8']().bits(256)\n2080"),
    "CORRECTIONS": ("which drift is corrected", ">>> 'two-level' in sdfeel.CORRECTIONS\nTrue"),
    "GRAPHS": ("graphs by name", ">>> sdfeel.GRAPHS['ring'](4).number_of_edges()\n4"),
    "OPTIMIZERS": (
        "what a client does with a gradient",
        ">>> sdfeel.OPTIMIZERS['momentum'](0.5).momentum\n0.5",
    ),
    "RATES": ("shapes of the rate", ">>> sdfeel.RATES['inverse'](0.1, k0=100)(100)\n0.05"),
    "SCHEMES": ("who trains with whom", ">>> sdfeel.SCHEMES['hierfavg'].averager\n'exact'"),
    "SERVER_OPTIMIZERS": (
        "what a server does with its clients' mean",
        ">>> sdfeel.SERVER_OPTIMIZERS['fedadam'](eta=0.01).beta1\n0.9",
    ),
}


def kind_of(value: object) -> str:
    """Return under which heading a public name stands."""
    if inspect.isclass(value):
        return "Errors" if issubclass(value, Exception) else "Classes"
    return "Tables" if isinstance(value, Mapping) else "Functions"


def example_of(name: str) -> str:
    """Return the example of a public name, as doctest reads it."""
    if name in TABLE_EXAMPLES:
        return TABLE_EXAMPLES[name][1]
    lines = (inspect.getdoc(getattr(sdfeel, name)) or "").splitlines()
    start = next((n for n, line in enumerate(lines) if line.lstrip().startswith(">>>")), None)
    if start is None:
        raise SystemExit(f"sdfeel.{name}: its docstring has no example")
    return inspect.cleandoc("\n".join(lines[start:]))


def reference() -> str:
    """Return the page of the public names."""
    sections: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in sdfeel.__all__:
        value = getattr(sdfeel, name)
        kind = kind_of(value)
        if kind == "Tables":
            about = f"{TABLE_EXAMPLES[name][0]}: {', '.join(f'`{key}`' for key in value)}."
        else:
            about = _paragraphs((inspect.getdoc(value) or "").split("\n\n")[0])
        sections[kind].append(f"### {name}\n\n{about}\n\n```pycon\n{example_of(name)}\n```\n")
    parts = [part for kind in KINDS for part in (f"## {kind}\n", *sections[kind])]
    return "\n".join([REFERENCE_HEAD, *parts])


PAGES = {
    "cli": cli,
    "settings": settings,
    "deployment_file": deployment_file,
    "profiles": profiles,
    "reference": reference,
}


def stale() -> Iterator[str]:
    """Yield the pages that are not as the code says."""
    for name, make in PAGES.items():
        path = DOCS / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != MADE + make():
            yield path.name


def main() -> int:
    """Write the pages, or with `--check` compare them."""
    if sys.argv[1:] == ["--check"]:
        names = [*stale()]
        for name in names:
            print(f"docs/{name} is old: `python docs/references.py` writes it", file=sys.stderr)
        return int(bool(names))
    for name, make in PAGES.items():
        (DOCS / f"{name}.md").write_text(MADE + make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
