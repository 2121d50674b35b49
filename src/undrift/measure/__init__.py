"""What is measured: quantities, metrics, costs."""
