"""Federated rounds: client sampling, jobs for the engine, aggregation and the server."""
