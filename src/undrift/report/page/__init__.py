"""The report's page: one self-contained HTML file. `undrift watch` shows the same parts.

page.py assembles it; parts.py renders texts and tables, plots.py the empty plot elements;
sections.py lists the plots, panels.py has their data, and the scripts draw them.
"""
