"""Page: one self-contained HTML file, whose parts `undrift watch` shows as well.

page.py puts it together; parts.py writes texts and tables, plots.py the empty places of plots,
sections.py says which plots there are, panels.py gives their data, and the scripts draw them.
"""
