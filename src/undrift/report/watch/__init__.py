"""`undrift watch`: a local page that follows runs, drawn by the code of the report.

    undrift watch runs

folder.py finds and reads the runs, server.py answers the browser.
"""
