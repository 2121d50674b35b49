"""undrift beside other federated simulators."""
