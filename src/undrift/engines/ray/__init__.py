"""Clients on a Ray cluster: one site per machine, each with the data and a local engine.

    engine  the engine, as users name it
    fleet   the driver's side: sites come and go, blocks of clients are handed out, results joined
    site    what runs on a machine
    wire    how jobs and results are packed

docs/decisions/0015-machines-are-sites.md says why it is built this way.
"""
