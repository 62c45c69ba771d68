"""A real deployment, killed while the page looks on: what is lost is named, with its cause."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")

import toy
from harness import as_toml, content, import_path

from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.operate.launch import Launch, prepare


def test_a_killed_edge_is_named(tmp_path: Path, monkeypatch, serve, visit) -> None:
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(content((1, 2), periods=2000)))
    write_safetensors(tmp_path / "initial.safetensors", as_vector(np.zeros(toy.SIZE)), {})
    monkeypatch.setenv("PYTHONPATH", import_path())
    monkeypatch.setenv("TOY_DELAY", "0.05")
    deployment = prepare(file)
    with Launch(file, deployment, tmp_path / "logs") as nodes:
        page = visit(serve(deployment=file))
        edges = page.get_by_test_id("deployment")
        edges.locator("tr[data-edge=a] [data-cell=links]", has_text="1/1").wait_for()
        edges.locator("tr[data-edge=b] [data-cell=clients]", has_text="2/2").wait_for()
        page.wait_for_selector("[data-bar=b]")
        told = page.evaluate("fetch('api/deployment').then((answer) => answer.json())")
        b = next(edge for edge in told["edges"] if edge["name"] == "b")
        assert b["memory"] > 10e6
        assert b["phases"].keys() == {"collect", "mix", "save"}
        assert b["link_disagreement"].keys() == {"a"}
        nodes.processes["b"].kill()
        nodes.processes["b"].wait()
        events = page.get_by_test_id("events")
        events.get_by_text("b stopped answering at").first.wait_for()
        events.get_by_text("a lost b at").first.wait_for()
        events.get_by_text("b does not answer: UNAVAILABLE").first.wait_for()
        link = page.get_by_test_id("network").locator("line[data-link='a-b']")
        link.and_(page.locator("[stroke-dasharray]")).wait_for(state="attached")
        nodes.start("edge", "b")
        events.get_by_text("a lost b at", exact=False).and_(
            page.locator("li", has_text="back after")
        ).first.wait_for()


def test_a_missing_certificate_is_a_sentence(tmp_path: Path, serve, visit) -> None:
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(content((1, 1))))
    page = visit(serve(deployment=file))
    page.get_by_test_id("deployment").get_by_text("certificate", exact=False).first.wait_for()
