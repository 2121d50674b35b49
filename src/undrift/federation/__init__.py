"""Rounds of many clients: sampling, jobs, aggregation, the server."""
