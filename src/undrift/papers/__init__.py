"""The papers as data: what each table and figure claims, and what came out here.

One TOML file per item, in a folder per paper, with the results beside them. `undrift paper` is the
command line.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
"""the folder with the papers, and with the results that come with the package"""

FULL, SMOKE = "full", "smoke"
"""scales that every item has"""
