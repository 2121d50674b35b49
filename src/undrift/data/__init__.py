"""Federated data: samples, and which client holds which."""

from undrift.data.federated import FederatedData

__all__ = ["FederatedData"]
