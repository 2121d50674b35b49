// A linear layer with few outputs, which reads the rows of a batch in place.
//
// `where` has the addresses of the rows. With few outputs, memory bandwidth is the limit: gathering
// the batch and calling sgemm twice takes nearly twice as long.

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace {

using at::Tensor;

template <typename T>
struct Lanes {
  static constexpr int64_t count = 64 / sizeof(T);
  typedef T type __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
  static const type& at(const T* p) { return *reinterpret_cast<const type*>(p); }
};

// Call f(size, first) for [0, n) in pieces of 4, 2 and 1, sizes that are known at compile time.
template <typename F>
void pieces(int64_t n, F f) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) f(std::integral_constant<int, 4>(), i);
  if (i + 2 <= n) f(std::integral_constant<int, 2>(), i), i += 2;
  if (i < n) f(std::integral_constant<int, 1>(), i);
}

// y[r][o] = x[r] . w[o] + b[o]
template <typename T, int ROWS, int OUTS>
void products(const T* const* x, const T* w, const T* b, T* y, int64_t outs, int64_t n) {
  typename Lanes<T>::type sums[ROWS][OUTS] = {};
  int64_t j = 0;
  for (; j + Lanes<T>::count <= n; j += Lanes<T>::count)
    for (int r = 0; r < ROWS; r++)
      for (int o = 0; o < OUTS; o++)
        sums[r][o] += Lanes<T>::at(x[r] + j) * Lanes<T>::at(w + o * n + j);
  for (int r = 0; r < ROWS; r++)
    for (int o = 0; o < OUTS; o++) {
      T total = 0;
      for (int64_t i = j; i < n; i++) total += x[r][i] * w[o * n + i];
      for (int64_t lane = 0; lane < Lanes<T>::count; lane++) total += sums[r][o][lane];
      y[r * outs + o] = total + (b ? b[o] : T(0));
    }
}

// w[o] = sum over r of g[r][o] x[r]
template <typename T, int OUTS>
void outer(const T* const* x, int64_t rows, const T* g, T* w, int64_t n) {
  using V = typename Lanes<T>::type;
  int64_t j = 0;
  for (; j + Lanes<T>::count <= n; j += Lanes<T>::count) {
    V sums[OUTS] = {};
    for (int64_t r = 0; r < rows; r++)
      for (int o = 0; o < OUTS; o++) sums[o] += g[r * OUTS + o] * Lanes<T>::at(x[r] + j);
    for (int o = 0; o < OUTS; o++) *reinterpret_cast<V*>(w + o * n + j) = sums[o];
  }
  for (; j < n; j++)
    for (int o = 0; o < OUTS; o++) {
      T total = 0;
      for (int64_t r = 0; r < rows; r++) total += g[r * OUTS + o] * x[r][j];
      w[o * n + j] = total;
    }
}

template <typename T>
const T* const* rows_at(const Tensor& where) {
  return reinterpret_cast<const T* const*>(where.const_data_ptr<int64_t>());
}

Tensor& linear_at(const Tensor& where, const Tensor& weight, const std::optional<Tensor>& bias,
                  Tensor& out) {
  const int64_t outs = weight.size(0), n = weight.size(1);
  AT_DISPATCH_FLOATING_TYPES(weight.scalar_type(), "linear_at", [&] {
    const scalar_t *w = weight.const_data_ptr<scalar_t>(), *b = nullptr;
    if (bias) b = bias->const_data_ptr<scalar_t>();
    auto x = rows_at<scalar_t>(where);
    auto y = out.data_ptr<scalar_t>();
    pieces(where.numel(), [&](auto some, int64_t r) {
      pieces(outs, [&](auto few, int64_t o) {
        products<scalar_t, some, few>(x + r, w + o * n, b ? b + o : b, y + r * outs + o, outs, n);
      });
    });
  });
  return out;
}

Tensor& outer_at(const Tensor& gradient, const Tensor& where, int64_t n, Tensor& out) {
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "outer_at", [&] {
    const scalar_t* from = gradient.const_data_ptr<scalar_t>();
    const int64_t rows = where.numel(), next_out = gradient.stride(0), next_row = gradient.stride(1);
    auto x = rows_at<scalar_t>(where);
    auto w = out.data_ptr<scalar_t>();
    std::vector<scalar_t> g;
    pieces(gradient.size(0), [&](auto few, int64_t first) {
      g.clear();
      for (int64_t r = 0; r < rows; r++)
        for (int o = 0; o < few; o++) g.push_back(from[(first + o) * next_out + r * next_row]);
      outer<scalar_t, few>(x, rows, g.data(), w + first * n, n);
    });
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(undrift, m) {
  m.def("linear_at(Tensor where, Tensor weight, Tensor? bias) -> Tensor");
  m.def("linear_at.out(Tensor where, Tensor weight, Tensor? bias, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("outer_at(Tensor gradient, Tensor where, int n) -> Tensor");
  m.def("outer_at.out(Tensor gradient, Tensor where, int n, *, Tensor(a!) out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(undrift, CPU, m) {
  m.impl("linear_at.out", linear_at);
  m.impl("outer_at.out", outer_at);
}
