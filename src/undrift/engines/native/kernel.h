// Kernels: the update rule of a local step, as instructions on parameter vectors (see kernel.py).
//
// Instructions run in sweeps over blocks of the vectors; a block stays in the cache for all
// instructions of a sweep.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "program.h"

namespace {

#define VECTOR_INSTRUCTIONS(X)                                                      \
  X(ADD) X(SUB) X(MUL) X(DIV) X(MAX) X(MIN) /* vector, vector */                     \
  X(ADDS) X(SUBS) X(MULS) X(DIVS) X(MAXS) X(MINS) /* vector, scalar */               \
  X(RSUBS) X(RDIVS) /* scalar, vector */                                            \
  X(AXPY) X(AXMY) /* a + s b, a - s b */                                            \
  X(NEG) X(SQRT) X(ABS) X(SIGN) X(EXP) X(LOG) X(RECIPROCAL) X(COPY) /* vector */

// These work on whole vectors or on scalars, so they end a sweep over the blocks.
#define OTHER_INSTRUCTIONS(X)                                                       \
  X(DOT) /* to a scalar */                                                          \
  X(S_ADD) X(S_SUB) X(S_MUL) X(S_DIV) X(S_MAX) X(S_MIN) /* scalar, scalar */         \
  X(S_NEG) X(S_SQRT) X(S_ABS) X(S_SIGN) X(S_EXP) X(S_LOG)                           \
  X(GRADIENT) /* of the loss, at a vector */

#define ENTRY(name) name,
enum Opcode : int64_t { VECTOR_INSTRUCTIONS(ENTRY) OTHER_INSTRUCTIONS(ENTRY) };
#undef ENTRY

#define ENTRY(name) #name,
const std::vector<std::string> OPCODES{VECTOR_INSTRUCTIONS(ENTRY) OTHER_INSTRUCTIONS(ENTRY)};
#undef ENTRY

struct Instruction {
  Opcode opcode;
  int64_t dst, a, b, s;
};

constexpr int64_t BLOCK = 2048;  // elements

struct Kernel : torch::CustomClassHolder {
  std::vector<Instruction> code;
  int64_t prologue, registers, vectors, scalars;

  // `operands` has four numbers per instruction: dst, a, b, s. Negative vectors are registers.
  // The first `prologue` instructions run before the first step only.
  Kernel(std::vector<std::string> names, std::vector<int64_t> operands, int64_t prologue,
         int64_t registers, int64_t vectors, int64_t scalars)
      : prologue(prologue), registers(registers), vectors(vectors), scalars(scalars) {
    for (size_t i = 0; i < names.size(); i++) {
      auto found = std::find(OPCODES.begin(), OPCODES.end(), names[i]);
      TORCH_CHECK(found != OPCODES.end(), "there is no instruction ", names[i]);
      const int64_t* o = &operands[4 * i];
      code.push_back({Opcode(found - OPCODES.begin()), o[0], o[1], o[2], o[3]});
    }
  }
};

template <typename T>
double sign_of(T v) { return T(v > 0) - T(v < 0); }

template <typename T, typename F>
inline void each(T* d, int64_t n, F f) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) d[i] = f(i);
}

template <typename T>
void block(Opcode op, T* d, const T* a, const T* b, T s, int64_t n) {
  switch (op) {
    case ADD: return each(d, n, [=](int64_t i) { return a[i] + b[i]; });
    case SUB: return each(d, n, [=](int64_t i) { return a[i] - b[i]; });
    case MUL: return each(d, n, [=](int64_t i) { return a[i] * b[i]; });
    case DIV: return each(d, n, [=](int64_t i) { return a[i] / b[i]; });
    case MAX: return each(d, n, [=](int64_t i) { return a[i] < b[i] ? b[i] : a[i]; });
    case MIN: return each(d, n, [=](int64_t i) { return a[i] > b[i] ? b[i] : a[i]; });
    case ADDS: return each(d, n, [=](int64_t i) { return a[i] + s; });
    case SUBS: return each(d, n, [=](int64_t i) { return a[i] - s; });
    case RSUBS: return each(d, n, [=](int64_t i) { return s - a[i]; });
    case MULS: return each(d, n, [=](int64_t i) { return a[i] * s; });
    case DIVS: return each(d, n, [=](int64_t i) { return a[i] / s; });
    case RDIVS: return each(d, n, [=](int64_t i) { return s / a[i]; });
    case MAXS: return each(d, n, [=](int64_t i) { return a[i] < s ? s : a[i]; });
    case MINS: return each(d, n, [=](int64_t i) { return a[i] > s ? s : a[i]; });
    case AXPY: return each(d, n, [=](int64_t i) { return a[i] + s * b[i]; });
    case AXMY: return each(d, n, [=](int64_t i) { return a[i] - s * b[i]; });
    case NEG: return each(d, n, [=](int64_t i) { return -a[i]; });
    case SQRT: return each(d, n, [=](int64_t i) { return std::sqrt(a[i]); });
    case ABS: return each(d, n, [=](int64_t i) { return std::abs(a[i]); });
    case SIGN: return each(d, n, [=](int64_t i) { return T(a[i] > 0) - T(a[i] < 0); });
    case EXP: return each(d, n, [=](int64_t i) { return std::exp(a[i]); });
    case LOG: return each(d, n, [=](int64_t i) { return std::log(a[i]); });
    case RECIPROCAL: return each(d, n, [=](int64_t i) { return T(1) / a[i]; });
    case COPY: return each(d, n, [=](int64_t i) { return a[i]; });
    default: break;
  }
}

double scalar(Opcode op, double a, double b) {
  switch (op) {
    case S_ADD: return a + b;
    case S_SUB: return a - b;
    case S_MUL: return a * b;
    case S_DIV: return a / b;
    case S_MAX: return a < b ? b : a;
    case S_MIN: return a > b ? b : a;
    case S_NEG: return -a;
    case S_SQRT: return std::sqrt(a);
    case S_ABS: return std::abs(a);
    case S_SIGN: return sign_of(a);
    case S_EXP: return std::exp(a);
    default: return std::log(a);
  }
}

// A kernel bound to one client's vectors and constants.
template <typename T>
struct BoundKernel {
  Program& program;
  const Kernel& kernel;
  std::vector<T*> vectors;
  std::vector<double> scalars;
  std::vector<T> registers;
  std::vector<Tensor> kept;
  int64_t n;

  BoundKernel(Program& program, const Kernel& kernel, at::TensorList given,
              std::vector<double> constants)
      : program(program), kernel(kernel), scalars(std::move(constants)),
        registers(kernel.registers * BLOCK), n(program.x.numel()) {
    for (auto& tensor : given) vectors.push_back(tensor.data_ptr<T>());
  }

  T* at(int64_t vector, int64_t from) {
    return vector < 0 ? &registers[(-vector - 1) * BLOCK] : vectors[vector] + from;
  }

  // Run instructions [first, last) on every block of the vectors.
  void sweep(size_t first, size_t last) {
    for (int64_t from = 0; from < n; from += BLOCK) {
      int64_t m = std::min(BLOCK, n - from);
      for (size_t i = first; i < last; i++) {
        const Instruction& op = kernel.code[i];
        block<T>(op.opcode, at(op.dst, from), at(op.a, from), at(op.b, from), T(scalars[op.s]), m);
      }
    }
  }

  // The order of the sums is fixed by the lengths alone (16 lanes per block), so that the compiler
  // can vectorise and the bits are always the same.
  double dot(const T* a, const T* b) {
    double total = 0;
    for (int64_t from = 0; from < n; from += BLOCK) {
      T lanes[16] = {};
      int64_t m = std::min(BLOCK, n - from), i = 0;
      for (; i + 16 <= m; i += 16)
        for (int64_t j = 0; j < 16; j++) lanes[j] += a[from + i + j] * b[from + i + j];
      for (; i < m; i++) total += double(a[from + i]) * b[from + i];
      for (T lane : lanes) total += lane;
    }
    return total;
  }

  // Only the first gradient of a step updates the buffers; others restore them.
  void gradient(const T* at, bool first) {
    T* x = program.x.data_ptr<T>();
    if (at != x) std::memcpy(x, at, n * sizeof(T));
    if (!first) for (auto& buffer : program.buffers) kept.push_back(buffer.clone());
    program.run();
    for (size_t i = 0; i < kept.size(); i++) program.buffers[i].copy_(kept[i]);
    kept.clear();
  }

  // Run instructions [from, to); returns the loss of the first gradient among them.
  double run(size_t from, size_t to) {
    bool first = true;
    double loss = 0;
    for (size_t i = from; i < to;) {
      const Instruction& op = kernel.code[i];
      if (op.opcode < DOT) {
        size_t last = i;
        while (last < to && kernel.code[last].opcode < DOT) last++;
        sweep(i, last);
        i = last;
        continue;
      }
      if (op.opcode == GRADIENT) {
        gradient(vectors[op.a], first);
        if (first) loss = program.loss.template item<double>();
        first = false;
      } else if (op.opcode == DOT) {
        scalars[op.dst] = dot(vectors[op.a], vectors[op.b]);
      } else {
        scalars[op.dst] = scalar(op.opcode, scalars[op.a], scalars[op.b]);
      }
      i++;
    }
    return loss;
  }
};

}  // namespace
