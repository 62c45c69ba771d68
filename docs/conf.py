"""How the documentation is built: Sphinx reads the Markdown of this folder (`make docs`).

The pages are written as GitHub shows them; what Sphinx needs beyond that is added here.
"""

from __future__ import annotations

import sys
from pathlib import Path

here = Path(__file__).parent
sys.path[:0] = [str(here / "extensions"), str(here.parent / "src")]

project = "sdfeel"
html_title = "sdfeel"
extensions = [
    "myst_parser",
    "sphinx.ext.napoleon",  # sections such as Args: in docstrings
    "contents",
    "equations",
    "notebook_pages",
    "reference",
]
exclude_patterns = ["reproduction/*/*.md", "reproduction/verdicts.md"]  # results.md holds them all

# What stands in the side bar, in this order: caption -> title -> page.
contents = {
    "Begin": {
        "Installing": "install",
        "Compare schemes on your data": "notebooks/compare",
        "Your own model and scheme": "notebooks/own",
        "From plan to deployment": "notebooks/deploy",
        "Coming from HierFL or your own loop": "own_loop",
    },
    "Simulate": {
        "Runs and comparisons": "simulate",
        "Your data": "data",
        "Methods beyond the paper": "methods",
        "Your own method": "own_method",
        "Optimizers and rates": "optimizers",
        "Server optimizers": "server_optimizers",
        "Two-level drift correction": "correction",
        "Codecs": "codecs",
        "Coming from Flower": "flower",
        "Unequal devices and asynchronous servers": "asynchrony",
        "The paper, and where we differ": "paper",
        "The paper reproduced": "reproduction/index",
        "All figures and verdicts": "reproduction/results",
        "Devices that differ, on CIFAR-10": "reproduction/devices",
        "Methods on CIFAR-10": "reproduction/methods",
    },
    "Plan": {"Theory": "theory", "Planner": "planner"},
    "Deploy": {"Deploying": "deployment", "Events, metrics, alerts": "events"},
    "Look up": {
        "Settings": "settings",
        "Reference": "reference",
        "The live page": "page",
        "Performance": "performance",
        "The house": "house",
    },
}

autodoc_member_order = "bysource"
napoleon_use_keyword = True  # the settings of `train`, with their defaults
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

myst_heading_anchors = 3  # links to headings work as on GitHub
myst_fence_as_directive = ["math"]

highlight_language = "text"  # a block without a language is a command

html_theme = "furo"
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["pages.css"]
