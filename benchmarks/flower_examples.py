"""What `sdfeel run` makes of Flower's own examples: a table of those that run and those refused.

    git clone --depth 1 https://github.com/flwrlabs/flower
    pip install flwr-datasets datasets torchvision scikit-learn pytorch-lightning opacus jax flax \\
        optax xgboost pandas sqlalchemy
    python benchmarks/flower_examples.py flower          # all, or those that are named

Each example is copied and run for two rounds with two servers of two clients. Its data come from a
hub; here they are as many numbers of the same kind, drawn on this machine: what is shown is whether
an app runs, not what it learns. Some examples need a line that newer versions of Flower or of other
packages ask for, with or without us; which one stands in the table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 300
CLIENTS = 4
COMMON = [
    "network.servers=2", "network.clients_per_server=2", "flower.run_config.num-server-rounds=2",
]  # fmt: skip

# Found by every Python that is started with this folder on its path.
SITE = """
import datasets
import numpy as np
from PIL import Image

IMAGES = {"uoft-cs/cifar10": ("img", (32, 32, 3)), "ylecun/mnist": ("image", (28, 28)),
          "zalando-datasets/fashion_mnist": ("image", (28, 28))}
COUNT = 2400


def images(column, shape, rng):
    labels = rng.integers(0, 10, COUNT)
    shown = [Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)) for _ in labels]
    kinds = datasets.Features({column: datasets.Image(), "label": datasets.ClassLabel(10)})
    return datasets.Dataset.from_dict({column: shown, "label": labels.tolist()}, features=kinds)


def flowers(rng):
    names = ["petal_length", "petal_width", "sepal_length", "sepal_width"]
    columns = {name: rng.normal(size=COUNT) for name in names}
    return datasets.Dataset.from_dict({**columns, "species": rng.integers(0, 3, COUNT)})


def incomes(rng):
    words = ["workclass", "education", "marital.status", "occupation", "relationship", "race",
             "sex", "native.country"]
    numbers = ["age", "fnlwgt", "education.num", "capital.gain", "capital.loss", "hours.per.week"]
    columns = {name: rng.choice(["a", "b", "c"], COUNT).tolist() for name in words}
    columns |= {name: rng.integers(0, 99, COUNT) for name in numbers}
    return datasets.Dataset.from_dict({**columns, "income": rng.choice(["<=50K", ">50K"], COUNT)})


def load_dataset(path, name=None, split=None, **_):
    parts = {}
    for number, part in enumerate(("train", "test")):
        rng = np.random.default_rng(number)
        if path in IMAGES:
            parts[part] = images(*IMAGES[path], rng)
        else:
            parts[part] = flowers(rng) if "iris" in path else incomes(rng)
    return datasets.DatasetDict(parts) if split is None else parts[split]


datasets.load_dataset = load_dataset
"""
# Weights & Biases wants an account.
WANDB = "def init(*_, **__): ...\ndef log(*_, **__): ...\ndef finish(*_, **__): ...\n"


@dataclass(frozen=True)
class Example:
    """An example of Flower, as a folder of its own.

    lines     what has to be replaced in its files for newer packages, and by what
    settings  what it needs beside the usual ones
    before    a program of its own that makes its data
    """

    folder: str
    lines: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[str] = ()
    before: Sequence[str] = ()


PARTS = ", ".join(f'"datasets/fashionmnist_part_{number + 1}"' for number in range(CLIENTS))
EXAMPLES = (
    Example("quickstart-pytorch"),
    Example("quickstart-sklearn"),
    Example("quickstart-numpy"),
    Example("quickstart-pytorch-lightning"),
    Example("opacus"),
    Example("fl-tabular"),
    Example("federated-vae"),
    Example("flower-simulation-step-by-step-pytorch/my-awesome-app"),
    Example(
        "embedded-devices",
        settings=[f"flower.node_config.dataset-path=[{PARTS}]"],
        before=["generate_dataset.py", "--num-supernodes", str(CLIENTS)],
    ),
    Example(
        "advanced-pytorch",
        lines={"from flwr.common.typing import UserConfig": "from flwr.app import UserConfig"},
    ),
    Example(
        "custom-mods", lines={"from flwr.client.typing import": "from flwr.clientapp.typing import"}
    ),
    Example("quickstart-jax", lines={"num_proc=2": "num_proc=None"}),
    Example("fl-dp-sa"),
    Example("flower-secure-aggregation"),
    Example("quickstart-xgboost"),
    Example("quickstart-pandas"),
    Example("federated-analytics"),
    Example("vertical-fl"),
)


def run(project: Path, example: Example, stand_ins: Path) -> tuple[str, str]:
    """Run an example; returns how it ended, and what was said of it."""
    paths = [str(stand_ins), str(project), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False,
            timeout=SECONDS,
        )  # fmt: skip

    for old, new in example.lines.items():
        for file in project.rglob("*.py"):
            file.write_text(file.read_text().replace(old, new))
    try:
        if example.before:
            start(*example.before).check_returncode()
        settings = [word for each in (*COMMON, *example.settings) for word in ("--set", each)]
        ended = start("-m", "sdfeel", "run", ".", "--out", "run", *settings)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as problem:
        return "else", str(problem)[:300]
    if ended.returncode == 0:
        changes = [f"{new!r} for {old!r}" for old, new in example.lines.items()]
        return "runs", " and ".join(changes)
    words = " ".join(ended.stderr.split()) or " ".join(ended.stdout.split())
    return "refused" if ended.returncode == 2 else "else", words[-300:]


def main() -> None:
    checkout, *names = sys.argv[1:]
    count: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        stand_ins = Path(folder, "stand-ins")
        stand_ins.mkdir()
        (stand_ins / "sitecustomize.py").write_text(SITE)
        (stand_ins / "wandb.py").write_text(WANDB)
        for example in EXAMPLES:
            if names and example.folder not in names:
                continue
            project = Path(folder, example.folder)
            shutil.copytree(Path(checkout, "examples", example.folder), project)
            began = time.perf_counter()
            end, words = run(project, example, stand_ins)
            print(f"{example.folder:<52} {end:<8} {time.perf_counter() - began:5.0f} s  {words}")
            sys.stdout.flush()
            count[end] = count.get(end, 0) + 1
    print(", ".join(f"{number} {end}" for end, number in count.items()))


if __name__ == "__main__":
    main()
