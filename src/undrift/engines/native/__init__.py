"""Local training without Python: traced from PyTorch and the algorithm's hooks, run in C++.

    trace, fold, rows, memory, emit, program     the gradient: operators of one step, run again
    symbolic, step_graph, passes, kernel, step   the update rule: hooks as a kernel on vectors
    launch, trainer                              all local steps of some clients as one call
    library                                      the part in C++: compiled once, then loaded
    recurrent                                    GRU and LSTM layers on operators of our own

docs/internals/native.md shows what each makes of an algorithm's step.
"""
