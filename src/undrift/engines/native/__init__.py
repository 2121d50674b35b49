"""Local training without Python: traced from PyTorch and the algorithm's hooks, run in C++."""
