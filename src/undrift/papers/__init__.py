"""The papers as data: what each table and figure claims, and what came out here.

One TOML file per item, in a folder per paper, with the results beside them. `undrift paper` is the
command line.
"""
