// GRU and LSTM layers: one operator runs one direction of one layer over all time steps.
//
// Inputs are multiplied by weights for many steps at once; a step is then one product with the last
// state and one loop over the gates. Forward stores what backward needs in `saved`, one row per
// step and sample. Backward writes the gradients of the gates' pre-activations into such rows, so
// that the gradients of weights and inputs are products over many steps again. A row has blocks of
// the state's size H; the first four are pre-activations, in `saved` replaced by the gates' values:
//
//   GRU   r  z  q  n        q = W_hn h + b_hn, which n multiplies by r     from x: all but q
//   LSTM  i  f  g  o  c     c is the new cell                              from h: all but c
//
// Steps are processed in chunks whose rows stay in the cache. With MKL, all runs in the calling
// thread. Do not compile with -ffast-math: it would optimise the rounding in `expm1` away.

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#ifdef __clang__
#define EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define EACH _Pragma("GCC ivdep")
#pragma GCC optimize("no-trapping-math", "no-thread-jumps")  // else clamping x splits the loops
#endif

// Matrix products of MKL, if torch contains it; else torch's.
#define BLAS(name, T)                                                                          \
  extern "C" __attribute__((weak)) void name(                                                  \
      const char*, const char*, const int*, const int*, const int*, const T*, const T*,        \
      const int*, const T*, const int*, const T*, T*, const int*)
BLAS(sgemm_, float);
BLAS(dgemm_, double);
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int);

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// Scalar functions, in a form that compilers can vectorise

template <class T>
struct Number;

template <>
struct Number<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23, bias = 127, terms = 7;
  static constexpr float largest = 87, log2_high = 0x1.63p-1f, log2_low = -0x1.bd0106p-13f;
};

template <>
struct Number<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023, terms = 13;
  static constexpr double largest = 708, log2_high = 0x1.62e4p-1, log2_low = 0x1.7f7d1cf79abcap-20;
};

template <class T>
constexpr auto INVERSE_FACTORIALS = [] {
  std::array<T, Number<T>::terms + 1> values{};
  double value = 1;
  for (int i = 1; i <= Number<T>::terms; ++i) values[i] = T(value /= i);
  return values;
}();

// e^x - 1 = 2^k (e^r - 1) + 2^k - 1 with |r| < log(2) / 2; x is clamped to avoid overflow, and NaN
// stays NaN.
template <class T>
inline T expm1(T x) {
  using N = Number<T>;
  using Bits = typename N::Bits;
  constexpr T round = T(Bits(3) << (N::mantissa - 1));
  x = x > N::largest ? N::largest : x;
  x = x < -N::largest ? -N::largest : x;
  const T shifted = x * T(1.44269504088896340736) + round, k = shifted - round;
  const T r = (x - k * N::log2_high) - k * N::log2_low;
  T sum = 0;
#pragma GCC unroll 16
  for (int i = N::terms; i > 1; --i) sum = sum * r + INVERSE_FACTORIALS<T>[i];
  Bits bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + N::bias) << N::mantissa;
  T power;
  std::memcpy(&power, &bits, sizeof bits);
  return power * (r + r * r * sum) + (power - 1);
}

template <class T>
inline T sigmoid(T x) {
  return 1 / (2 + expm1(-x));
}

template <class T>
inline T tanh(T x) {
  const T e = expm1(x > 20 ? T(40) : 2 * x);
  return e / (2 + e);
}

// Products

// These products are too small for several threads, which would only wait for each other.
struct OneThread {
  const int before = MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0;
  ~OneThread() {
    if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(before);
  }
};

template <class T>
struct Matrix {
  T* data;
  int64_t stride;  // from row to row
  bool transposed = false;
};

// c = a b + keep c
template <class T>
void product(int64_t rows, int64_t inner, int64_t columns, Matrix<const T> a, Matrix<const T> b,
             T keep, Matrix<T> c) {
  const auto gemm = [] {
    if constexpr (std::is_same_v<T, float>) return &sgemm_;
    else return &dgemm_;
  }();
  if (gemm && MKL_Set_Num_Threads_Local) {  // column-major: c' = b' a' + keep c'
    const int m = columns, n = rows, k = inner, lda = b.stride, ldb = a.stride, ldc = c.stride;
    const T one = 1;
    gemm(b.transposed ? "t" : "n", a.transposed ? "t" : "n", &m, &n, &k, &one, b.data, &lda,
         a.data, &ldb, &keep, c.data, &ldc);
    return;
  }
  const auto tensor = [](const T* data, int64_t rows, int64_t columns, int64_t stride, bool t) {
    return at::from_blob(const_cast<T*>(data), {rows, columns}, {t ? 1 : stride, t ? stride : 1},
                         c10::CppTypeToScalarType<T>::value);
  };
  Tensor out = tensor(c.data, rows, columns, c.stride, false);
  at::addmm_out(out, out, tensor(a.data, rows, inner, a.stride, a.transposed),
                tensor(b.data, inner, columns, b.stride, b.transposed), keep);
}

// Cells: one step of one sample, and which blocks of the weights belong to which blocks of a row

struct Blocks {
  int weights, row, count;
  bool added = false;  // whether the product is added to the row's blocks, or replaces them
};

constexpr int SUMS = 4;

struct GRU {
  static constexpr int width = 4, gates = 3;
  static constexpr Blocks from_input[]{{0, 0, 2}, {2, 3, 1}};
  static constexpr Blocks from_state[]{{0, 0, 2, true}, {2, 2, 1}};

  // `before` is the last state
  template <class T>
  static void forward(const T* bias, const T* before, T* row, T* y, int64_t H) {
    const T *bR = bias, *bZ = bias + H, *bQ = bias + 2 * H, *bN = bias + 3 * H;
    T *R = row, *Z = row + H, *Q = row + 2 * H, *N = row + 3 * H;
    EACH for (int64_t j = 0; j < H; ++j) {
      const T r = sigmoid(R[j] + bR[j]), z = sigmoid(Z[j] + bZ[j]), q = Q[j] + bQ[j];
      const T n = tanh(N[j] + bN[j] + r * q);
      R[j] = r, Z[j] = z, Q[j] = q, N[j] = n;
      y[j] = n + z * (before[j] - n);
    }
  }

  template <class T>
  static void backward(const T* row, const T* before, const T* dy, T* dh, T*, T* d, T* bias,
                       int64_t H) {
    T *bR = bias, *bZ = bias + H, *bQ = bias + 2 * H, *bN = bias + 3 * H;
    const T *R = row, *Z = row + H, *Q = row + 2 * H, *N = row + 3 * H;
    T *dR = d, *dZ = d + H, *dQ = d + 2 * H, *dN = d + 3 * H;
    EACH for (int64_t j = 0; j < H; ++j) {
      const T r = R[j], z = Z[j], n = N[j], g = dy[j] + dh[j];
      const T dn = g * (1 - z) * (1 - n * n);
      bR[j] += dR[j] = dn * Q[j] * r * (1 - r);
      bZ[j] += dZ[j] = g * (before[j] - n) * z * (1 - z);
      bQ[j] += dQ[j] = dn * r;
      bN[j] += dN[j] = dn;
      dh[j] = g * z;
    }
  }
};

struct LSTM {
  static constexpr int width = 5, gates = 4;
  static constexpr Blocks from_input[]{{0, 0, 4}};
  static constexpr Blocks from_state[]{{0, 0, 4, true}};

  // `before` is the last cell
  template <class T>
  static void forward(const T* bias, const T* before, T* row, T* y, int64_t H) {
    const T *bI = bias, *bF = bias + H, *bG = bias + 2 * H, *bO = bias + 3 * H;
    T *I = row, *F = row + H, *G = row + 2 * H, *O = row + 3 * H, *C = row + 4 * H;
    EACH for (int64_t j = 0; j < H; ++j) {
      const T i = sigmoid(I[j] + bI[j]), f = sigmoid(F[j] + bF[j]);
      const T g = tanh(G[j] + bG[j]), o = sigmoid(O[j] + bO[j]);
      const T c = f * before[j] + i * g;
      I[j] = i, F[j] = f, G[j] = g, O[j] = o, C[j] = c;
      y[j] = o * tanh(c);
    }
  }

  template <class T>
  static void backward(const T* row, const T* before, const T* dy, T* dh, T* dc, T* d,
                       T* bias, int64_t H) {
    T *bI = bias, *bF = bias + H, *bG = bias + 2 * H, *bO = bias + 3 * H;
    const T *I = row, *F = row + H, *G = row + 2 * H, *O = row + 3 * H, *C = row + 4 * H;
    T *dI = d, *dF = d + H, *dG = d + 2 * H, *dO = d + 3 * H;
    EACH for (int64_t j = 0; j < H; ++j) {
      const T i = I[j], f = F[j], g = G[j], o = O[j], t = tanh(C[j]), gh = dy[j] + dh[j];
      const T gc = dc[j] + gh * o * (1 - t * t);
      bI[j] += dI[j] = gc * g * i * (1 - i);
      bF[j] += dF[j] = gc * before[j] * f * (1 - f);
      bG[j] += dG[j] = gc * i * (1 - g * g);
      bO[j] += dO[j] = gh * t * o * (1 - o);
      dc[j] = gc * f;
      dh[j] = 0;
    }
  }
};

// Layers

struct Sizes {
  int64_t steps, batch, inputs, H;
  bool reverse;

  int64_t chunk() const { return std::max<int64_t>(1, 128 / batch); }
  // The stored position of step number s, and the lowest position of steps [s, e).
  int64_t place(int64_t s) const { return reverse ? steps - 1 - s : s; }
  int64_t first(int64_t s, int64_t e) const { return reverse ? steps - e : s; }
};

template <class Cell>
Sizes sizes(const Tensor& x, const Tensor& h0, const MaybeTensor& c0, const Tensor& w_ih,
            const Tensor& w_hh, bool reverse) {
  TORCH_CHECK(x.dim() == 3 && h0.dim() == 2, "x must be (steps, batch, inputs), h0 (batch, size)");
  const Sizes n{x.size(0), x.size(1), x.size(2), h0.size(1), reverse};
  const int64_t rows = Cell::gates * n.H;
  const auto fits = [&](const Tensor& t, int64_t a, int64_t b) {
    return t.scalar_type() == x.scalar_type() && t.sizes() == at::IntArrayRef({a, b});
  };
  TORCH_CHECK(n.steps > 0 && n.batch > 0 && n.inputs > 0 && n.H > 0, "nothing may be empty");
  TORCH_CHECK(fits(h0, n.batch, n.H) && (!c0 || fits(*c0, n.batch, n.H)), "states do not fit");
  TORCH_CHECK(fits(w_ih, rows, n.inputs) && fits(w_hh, rows, n.H), "weights do not fit");
  return n;
}

template <class Cell, class T>
void forward(const Sizes& n, const T* x, const T* h0, const T* c0, const T* w_ih, const T* w_hh,
             const T* b_ih, const T* b_hh, T* ys, T* saved) {
  const int64_t H = n.H, state = n.batch * H, width = Cell::width * H;
  std::vector<T> bias(SUMS * H);
  if (b_hh) std::copy_n(b_hh, Cell::gates * H, bias.data());
  if (b_ih)
    for (auto [from, to, count, _] : Cell::from_input)
      for (int64_t j = 0; j < count * H; ++j) bias[to * H + j] += b_ih[from * H + j];
  for (int64_t start = 0; start < n.steps; start += n.chunk()) {
    const int64_t end = std::min(start + n.chunk(), n.steps), rows = (end - start) * n.batch;
    const int64_t first = n.first(start, end) * n.batch;
    for (auto [from, to, count, added] : Cell::from_input)
      product<T>(rows, n.inputs, count * H, {x + first * n.inputs, n.inputs},
                 {w_ih + from * H * n.inputs, n.inputs, true}, added,
                 {saved + first * width + to * H, width});
    for (int64_t s = start; s < end; ++s) {
      const int64_t now = n.place(s), last = n.place(s - 1);
      const T* h = s ? ys + last * state : h0;
      T *row = saved + now * n.batch * width, *y = ys + now * state;
      for (auto [from, to, count, added] : Cell::from_state)
        product<T>(n.batch, H, count * H, {h, H}, {w_hh + from * H, Cell::gates * H}, added,
                   {row + to * H, width});
      const T* before = !c0 ? h : s ? saved + last * n.batch * width + SUMS * H : c0;
      const int64_t stride = c0 && s ? width : H;
      for (int64_t b = 0; b < n.batch; ++b)
        Cell::forward(bias.data(), before + b * stride, row + b * width, y + b * H, H);
    }
  }
}

template <class T>
struct Gradients {
  T *x, *h0, *c0, *w_ih, *w_hh, *b_ih, *b_hh;
};

template <class Cell, class T>
void backward(const Sizes& n, Matrix<const T> dys, int64_t dys_step, const T* x, const T* h0,
              const T* c0, const T* w_ih, const T* w_hh, const T* ys, const T* saved, T* d,
              Gradients<T> to) {
  const int64_t H = n.H, state = n.batch * H, width = Cell::width * H, sums = SUMS * H;
  const int64_t gates = Cell::gates * H;
  std::vector<T> bias(sums);
  for (int64_t end = n.steps, start; end > 0; end = start) {
    start = std::max<int64_t>(0, end - n.chunk());
    const int64_t rows = (end - start) * n.batch, first = n.first(start, end) * n.batch;
    for (int64_t s = end - 1; s >= start; --s) {
      const int64_t now = n.place(s), last = n.place(s - 1);
      const T *row = saved + now * n.batch * width, *dy = dys.data + now * dys_step;
      const T* before = c0 ? (s ? saved + last * n.batch * width + sums : c0)
                           : (s ? ys + last * state : h0);
      const int64_t stride = c0 && s ? width : H;
      T* out = d + (now * n.batch - first) * sums;
      for (int64_t b = 0; b < n.batch; ++b)
        Cell::backward(row + b * width, before + b * stride, dy + b * dys.stride, to.h0 + b * H,
                       to.c0 ? to.c0 + b * H : nullptr, out + b * sums, bias.data(), H);
      product<T>(n.batch, gates, H, {out, sums}, {w_hh, H}, 1, {to.h0, H});
    }
    for (auto [from, block, count, _] : Cell::from_input) {
      const int64_t w = from * H * n.inputs;
      product<T>(count * H, rows, n.inputs, {d + block * H, sums, true},
                 {x + first * n.inputs, n.inputs}, 1, {to.w_ih + w, n.inputs});
      if (to.x)
        product<T>(rows, count * H, n.inputs, {d + block * H, sums}, {w_ih + w, n.inputs},
                   from > 0, {to.x + first * n.inputs, n.inputs});
    }
    const int64_t later = std::max<int64_t>(start, 1);  // steps whose last state is in ys
    if (later < end) {
      const int64_t a = n.first(later, end), b = n.first(later - 1, end - 1);
      product<T>(gates, (end - later) * n.batch, H,
                 {d + (a * n.batch - first) * sums, sums, true}, {ys + b * state, H}, 1,
                 {to.w_hh, H});
    }
    if (!start)
      product<T>(gates, n.batch, H, {d + (n.place(0) * n.batch - first) * sums, sums, true},
                 {h0, H}, 1, {to.w_hh, H});
  }
  std::copy_n(bias.data(), gates, to.b_hh);
  for (auto [from, block, count, _] : Cell::from_input)
    std::copy_n(bias.data() + block * H, count * H, to.b_ih + from * H);
}

// Operators. Those with a name in `_out` write into given tensors, the others allocate them.

template <class T>
const T* read(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

Tensor dense(const MaybeTensor& t) { return t && t->defined() ? t->contiguous() : Tensor(); }

void expect(const Tensor& out, const Tensor& x, at::IntArrayRef sizes) {
  TORCH_CHECK(out.scalar_type() == x.scalar_type() && out.sizes() == sizes && out.is_contiguous(),
              "a result of ", sizes, " cannot be written into a tensor of ", out.sizes());
}

template <class Cell>
void run_forward(const Tensor& x, const Tensor& h0, const MaybeTensor& c0, const Tensor& w_ih,
                 const Tensor& w_hh, const MaybeTensor& b_ih, const MaybeTensor& b_hh,
                 bool reverse, const Tensor& ys, const Tensor& saved) {
  const Sizes n = sizes<Cell>(x, h0, c0, w_ih, w_hh, reverse);
  for (const auto& b : {b_ih, b_hh})
    TORCH_CHECK(!b || b->sizes() == at::IntArrayRef({w_ih.size(0)}), "biases do not fit");
  expect(ys, x, {n.steps, n.batch, n.H});
  expect(saved, x, {n.steps, n.batch, Cell::width * n.H});
  // w_hh is transposed once: products with the transposed copy are faster
  const Tensor in = dense(x), h = dense(h0), c = dense(c0), w = dense(w_ih), u = dense(w_hh.t()),
               a = dense(b_ih), b = dense(b_hh);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "recurrent_forward", [&] {
    using T = scalar_t;
    const OneThread guard;
    forward<Cell, T>(n, read<T>(in), read<T>(h), read<T>(c), read<T>(w), read<T>(u), read<T>(a),
                     read<T>(b), ys.mutable_data_ptr<T>(), saved.mutable_data_ptr<T>());
  });
}

template <class Cell>
void run_backward(const Tensor& dys, const Tensor& x, const Tensor& h0, const MaybeTensor& c0,
                  const Tensor& w_ih, const Tensor& w_hh, const Tensor& ys, const Tensor& saved,
                  bool reverse, bool need_dx, const Tensor& dx, const Tensor& dh0,
                  const Tensor& dc0, const Tensor& dw_ih, const Tensor& dw_hh,
                  const Tensor& db_ih, const Tensor& db_hh) {
  const Sizes n = sizes<Cell>(x, h0, c0, w_ih, w_hh, reverse);
  expect(ys, x, {n.steps, n.batch, n.H});
  expect(saved, x, {n.steps, n.batch, Cell::width * n.H});
  if (need_dx) expect(dx, x, x.sizes());
  for (const auto& [out, like] : {std::tie(dh0, h0), std::tie(dw_ih, w_ih), std::tie(dw_hh, w_hh)})
    expect(out, x, like.sizes()), out.zero_();
  for (const auto& out : {db_ih, db_hh}) expect(out, x, {w_ih.size(0)});
  const Tensor dy = dys.stride(2) == 1 ? dys : dys.contiguous();
  const Tensor in = dense(x), h = dense(h0), c = dense(c0), w = dense(w_ih), u = dense(w_hh);
  const Tensor d = at::empty({n.chunk() * n.batch, SUMS * n.H}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "recurrent_backward", [&] {
    using T = scalar_t;
    const OneThread guard;
    const auto write = [](const Tensor& t) {
      return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
    };
    backward<Cell, T>(n, {read<T>(dy), dy.stride(1)}, dy.stride(0), read<T>(in), read<T>(h),
                      read<T>(c), read<T>(w), read<T>(u), read<T>(ys), read<T>(saved), write(d),
                      {need_dx ? write(dx) : nullptr, write(dh0), write(dc0), write(dw_ih),
                       write(dw_hh), write(db_ih), write(db_hh)});
  });
}

using Refs2 = std::tuple<Tensor&, Tensor&>;
using Refs3 = std::tuple<Tensor&, Tensor&, Tensor&>;
using Refs6 = std::tuple<Tensor&, Tensor&, Tensor&, Tensor&, Tensor&, Tensor&>;
using Refs7 = std::tuple<Tensor&, Tensor&, Tensor&, Tensor&, Tensor&, Tensor&, Tensor&>;

Refs2 gru_forward_out(const Tensor& x, const Tensor& h0, const Tensor& w_ih, const Tensor& w_hh,
                      const MaybeTensor& b_ih, const MaybeTensor& b_hh, bool reverse, Tensor& ys,
                      Tensor& saved) {
  run_forward<GRU>(x, h0, std::nullopt, w_ih, w_hh, b_ih, b_hh, reverse, ys, saved);
  return {ys, saved};
}

Refs3 lstm_forward_out(const Tensor& x, const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                       const Tensor& w_hh, const MaybeTensor& b_ih, const MaybeTensor& b_hh,
                       bool reverse, Tensor& ys, Tensor& c, Tensor& saved) {
  run_forward<LSTM>(x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse, ys, saved);
  const int64_t H = h0.size(1);
  c.copy_(saved.select(0, reverse ? 0 : -1).narrow(1, SUMS * H, H));
  return {ys, c, saved};
}

Refs6 gru_backward_out(const Tensor& dys, const Tensor& x, const Tensor& h0, const Tensor& w_ih,
                       const Tensor& w_hh, const Tensor& ys, const Tensor& saved, bool reverse,
                       bool need_dx, Tensor& dx, Tensor& dh0, Tensor& dw_ih, Tensor& dw_hh,
                       Tensor& db_ih, Tensor& db_hh) {
  run_backward<GRU>(dys, x, h0, std::nullopt, w_ih, w_hh, ys, saved, reverse, need_dx, dx, dh0,
                    Tensor(), dw_ih, dw_hh, db_ih, db_hh);
  return {dx, dh0, dw_ih, dw_hh, db_ih, db_hh};
}

Refs7 lstm_backward_out(const Tensor& dys, const MaybeTensor& dc, const Tensor& x,
                        const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                        const Tensor& w_hh, const Tensor& ys, const Tensor& saved, bool reverse,
                        bool need_dx, Tensor& dx, Tensor& dh0, Tensor& dc0, Tensor& dw_ih,
                        Tensor& dw_hh, Tensor& db_ih, Tensor& db_hh) {
  expect(dc0, x, c0.sizes());
  dc ? dc0.copy_(*dc) : dc0.zero_();
  run_backward<LSTM>(dys, x, h0, c0, w_ih, w_hh, ys, saved, reverse, need_dx, dx, dh0, dc0, dw_ih,
                     dw_hh, db_ih, db_hh);
  return {dx, dh0, dc0, dw_ih, dw_hh, db_ih, db_hh};
}

Tensor make(const Tensor& x, at::IntArrayRef sizes) { return at::empty(sizes, x.options()); }

std::tuple<Tensor, Tensor> gru_forward(const Tensor& x, const Tensor& h0, const Tensor& w_ih,
                                       const Tensor& w_hh, const MaybeTensor& b_ih,
                                       const MaybeTensor& b_hh, bool reverse) {
  Tensor ys = make(x, {x.size(0), x.size(1), h0.size(1)});
  Tensor saved = make(x, {x.size(0), x.size(1), GRU::width * h0.size(1)});
  return gru_forward_out(x, h0, w_ih, w_hh, b_ih, b_hh, reverse, ys, saved);
}

std::tuple<Tensor, Tensor, Tensor> lstm_forward(const Tensor& x, const Tensor& h0,
                                                const Tensor& c0, const Tensor& w_ih,
                                                const Tensor& w_hh, const MaybeTensor& b_ih,
                                                const MaybeTensor& b_hh, bool reverse) {
  Tensor ys = make(x, {x.size(0), x.size(1), h0.size(1)}), c = make(x, c0.sizes());
  Tensor saved = make(x, {x.size(0), x.size(1), LSTM::width * h0.size(1)});
  return lstm_forward_out(x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse, ys, c, saved);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> gru_backward(
    const Tensor& dys, const Tensor& x, const Tensor& h0, const Tensor& w_ih, const Tensor& w_hh,
    const Tensor& ys, const Tensor& saved, bool reverse, bool need_dx) {
  Tensor dx = need_dx ? make(x, x.sizes()) : make(x, {0}), dh0 = make(x, h0.sizes());
  Tensor dw_ih = make(x, w_ih.sizes()), dw_hh = make(x, w_hh.sizes());
  Tensor db_ih = make(x, {w_ih.size(0)}), db_hh = make(x, {w_ih.size(0)});
  return gru_backward_out(dys, x, h0, w_ih, w_hh, ys, saved, reverse, need_dx, dx, dh0, dw_ih,
                          dw_hh, db_ih, db_hh);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> lstm_backward(
    const Tensor& dys, const MaybeTensor& dc, const Tensor& x, const Tensor& h0, const Tensor& c0,
    const Tensor& w_ih, const Tensor& w_hh, const Tensor& ys, const Tensor& saved, bool reverse,
    bool need_dx) {
  Tensor dx = need_dx ? make(x, x.sizes()) : make(x, {0}), dh0 = make(x, h0.sizes());
  Tensor dc0 = make(x, c0.sizes()), dw_ih = make(x, w_ih.sizes()), dw_hh = make(x, w_hh.sizes());
  Tensor db_ih = make(x, {w_ih.size(0)}), db_hh = make(x, {w_ih.size(0)});
  return lstm_backward_out(dys, dc, x, h0, c0, w_ih, w_hh, ys, saved, reverse, need_dx, dx, dh0,
                           dc0, dw_ih, dw_hh, db_ih, db_hh);
}

// Define both overloads of an operator. Without need_dx, dx is empty.
void define(torch::Library& m, const std::string& name, const std::string& arguments,
            const std::vector<std::string>& results) {
  std::string made, given, written;
  for (char alias = 'a'; const auto& result : results) {
    const std::string comma = made.empty() ? "" : ", ", mark = "(" + std::string(1, alias++) + "!)";
    made += comma + "Tensor " + result;
    given += ", Tensor" + mark + " " + result;
    written += comma + "Tensor" + mark + " " + result;
  }
  m.def((name + "(" + arguments + ") -> (" + made + ")").c_str());
  m.def((name + ".out(" + arguments + ", *" + given + ") -> (" + written + ")").c_str());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(undrift, m) {
  const std::string last = ", Tensor ys, Tensor saved, bool reverse, bool need_dx";
  const std::string biases = ", Tensor? b_ih, Tensor? b_hh, bool reverse";
  const std::string gru = "Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh";
  const std::string lstm = "Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh";
  define(m, "gru_forward", gru + biases, {"ys", "saved"});
  define(m, "lstm_forward", lstm + biases, {"ys", "c", "saved"});
  define(m, "gru_backward", "Tensor dys, " + gru + last,
         {"dx", "dh0", "dw_ih", "dw_hh", "db_ih", "db_hh"});
  define(m, "lstm_backward", "Tensor dys, Tensor? dc, " + lstm + last,
         {"dx", "dh0", "dc0", "dw_ih", "dw_hh", "db_ih", "db_hh"});
}

TORCH_LIBRARY_IMPL(undrift, CPU, m) {
  m.impl("gru_forward", gru_forward);
  m.impl("gru_forward.out", gru_forward_out);
  m.impl("gru_backward", gru_backward);
  m.impl("gru_backward.out", gru_backward_out);
  m.impl("lstm_forward", lstm_forward);
  m.impl("lstm_forward.out", lstm_forward_out);
  m.impl("lstm_backward", lstm_backward);
  m.impl("lstm_backward.out", lstm_backward_out);
}
