"""Watch: a local page that shows runs as they go along, drawn by the code of the report.

    undrift watch runs

folder.py finds and reads the runs, server.py answers the browser.
"""
