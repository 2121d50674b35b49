"""Products with rows in place are those of matrices."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from undrift.engines.native import library

FLOATS = st.sampled_from([torch.float32, torch.float64])
SIZES = st.integers(1, 11)


@given(rows=SIZES, outs=SIZES, n=st.integers(1, 70), dtype=FLOATS, biased=st.booleans())
def test_rows_in_place(rows: int, outs: int, n: int, dtype: torch.dtype, biased: bool) -> None:
    library.load()
    generator = torch.Generator().manual_seed(0)
    data, weight, bias, gradient = (
        torch.randn(shape, generator=generator, dtype=dtype)
        for shape in ((20, n), (outs, n), (outs,), (rows, outs))
    )
    places = torch.randint(20, (rows,), generator=generator)
    where = data.data_ptr() + places * n * data.element_size()
    outputs, gradients = torch.empty(rows, outs, dtype=dtype), torch.empty(outs, n, dtype=dtype)
    torch.ops.undrift.linear_at.out(where, weight, bias if biased else None, out=outputs)
    torch.ops.undrift.outer_at.out(gradient.t(), where, n, out=gradients)
    wanted = data[places] @ weight.t() + (bias if biased else 0)
    torch.testing.assert_close(outputs, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradients, gradient.t() @ data[places], rtol=1e-4, atol=1e-4)
