"""Federated data: samples and their distribution over clients."""

from undrift.data.federated import FederatedData

__all__ = ["FederatedData"]
