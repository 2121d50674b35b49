"""Compiled local training: traced from PyTorch and from an algorithm's hooks, run in C++.

    trace, fold, rows, memory, emit, program     gradient: the operators of a traced step
    symbolic, step_graph, passes, kernel, step   update rule: the hooks as a kernel on vectors
    launch, trainer                              all local steps of several clients in one call
    library                                      compiles and loads the C++ sources
    recurrent                                    faster operators for GRU and LSTM layers

docs/internals/native.md follows AdaBest's local step through all stages.
"""
