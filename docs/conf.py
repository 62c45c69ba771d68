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
    "accessible",
    "contents",
    "equations",
    "notebook_pages",
    "reference",
    "themes",
]
exclude_patterns: list[str] = []

# What stands in the side bar, in this order: caption -> title -> page.
contents = {
    "Get started": {
        "Install": "install",
        "Quick start": "quickstart",
        "Concepts and glossary": "concepts",
        "Twenty questions": "questions",
    },
    "Tutorials": {
        "Compare schemes on your data": "notebooks/compare",
        "Your own model and scheme": "notebooks/own",
        "From plan to deployment": "notebooks/deploy",
        "Deploy here and kill an edge": "kill_an_edge",
    },
    "How-to": {
        "Run and compare": "simulate",
        "Use your own data": "data",
        "Write your own method": "own_method",
        "Plan the settings": "planner",
        "Deploy on several machines": "deployment",
        "Mend what fails": "failures",
        "Watch on the live page": "page",
        "Come from Flower": "flower",
        "Come from your own loop": "own_loop",
    },
    "Explanation": {
        "Methods beyond the paper": "methods",
        "Optimizers and rates": "optimizers",
        "Server optimizers": "server_optimizers",
        "Drift correction": "correction",
        "Codecs": "codecs",
        "Neighbours that lie": "lies",
        "Unequal devices": "asynchrony",
        "What a deployment promises": "promises",
        "The paper, and where we differ": "paper",
        "Theory": "theory",
    },
    "Reference": {
        "Command line": "cli",
        "Run file": "settings",
        "Deployment file": "deployment_file",
        "Profiles": "profiles",
        "Run folder": "run_folder",
        "Events, metrics, alerts": "events",
        "Python": "reference",
    },
    "Results": {
        "Report": "report",
        "The paper reproduced": "reproduction/index",
        "All figures and verdicts": "reproduction/results",
        "Methods on CIFAR-10": "reproduction/methods",
        "Devices on CIFAR-10": "reproduction/devices",
        "Others' experiments": "reproduction/others",
        "Methods, planner, deployments": "measured",
        "Speed and memory": "performance",
        "Beside other libraries": "peers",
    },
    "Contribute": {
        "How to contribute": "contributing",
        "Architecture": "house",
    },
}

autodoc_member_order = "bysource"
napoleon_use_keyword = True  # the settings of `train`, with their defaults
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
toc_object_entries = False  # names have headings

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
html_js_files = ["copy.js"]
