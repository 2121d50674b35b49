// A step of local training as a list of operators that is recorded once and run many times.
//
// `Program` is the gradient: the operators that forward and backward made, on memory of its own.
// `Rule` is what an algorithm makes of it: arithmetic on whole parameter vectors, run in blocks that
// stay in the cache. `walk` runs all local steps of some clients without returning to Python.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

namespace {

using at::Tensor;
using c10::IValue;

struct Instruction {
  c10::OperatorHandle op;
  bool fresh;  // returns new tensors, whose memory takes the place of `outs`; else writes into `outs`
  std::vector<IValue> args;
  std::vector<Tensor> outs;
  std::vector<Tensor> done;  // whose memory nobody reads after this one
};

struct Program : torch::CustomClassHolder {
  std::vector<Instruction> code;
  std::vector<IValue> stack;
  Tensor x, inputs, targets, loss;
  Tensor where;  // if defined, the addresses of the batch's rows, which are not gathered then
  std::vector<Tensor> buffers;

  Program(Tensor x, Tensor inputs, Tensor targets, Tensor loss, std::vector<Tensor> buffers)
      : x(x), inputs(inputs), targets(targets), loss(loss), buffers(std::move(buffers)) {}

  // Recording: `begin` opens an instruction, the others fill in its arguments in order.
  void begin(std::string name, std::string overload, bool fresh) {
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    code.push_back({op, fresh, {}, {}, {}});
  }
  void push(IValue value) { code.back().args.push_back(std::move(value)); }
  void ints(std::vector<int64_t> v) { push(IValue(v)); }
  void floats(std::vector<double> v) { push(IValue(v)); }
  void bools(c10::List<bool> v) { push(IValue(v)); }
  void tensors(std::vector<Tensor> v) { push(IValue(v)); }
  void maybe_tensors(std::vector<std::optional<Tensor>> v) {
    c10::List<std::optional<Tensor>> list;
    for (auto& t : v) list.push_back(t);
    push(IValue(list));
  }
  void dtype_of(Tensor t) { push(IValue(t.scalar_type())); }
  void device_of(Tensor t) { push(IValue(t.device())); }
  void number(at::Scalar value) {  // a Python number where a tensor is expected
    Tensor t = at::scalar_tensor(value, value.isFloatingPoint() ? at::kDouble : at::kLong);
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
    push(IValue(t));
  }
  void out(Tensor t) { code.back().outs.push_back(std::move(t)); }

  // Loss and gradient of what is in `x`, `inputs` and `targets`.
  void run() {
    for (auto& step : code) call(step);
    stack.clear();
  }

  void call(Instruction& step) {
    stack.assign(step.args.begin(), step.args.end());
    step.op.callBoxed(stack);
    if (step.fresh)
      for (size_t i = 0; i < step.outs.size(); i++)
        if (step.outs[i].defined()) replace(step.outs[i], stack[i].toTensor(), step.op);
    for (auto& t : step.done)
      t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().clear();
  }

  // The operators, and the seconds that each takes in a run, as a mean over several.
  std::tuple<std::vector<std::string>, std::vector<double>> times(int64_t runs) {
    using clock = std::chrono::steady_clock;
    std::vector<std::string> names;
    std::vector<double> seconds(code.size());
    for (auto& step : code) names.push_back(step.op.schema().name());
    for (int64_t k = 0; k < runs; k++)
      for (size_t i = 0; i < code.size(); i++) {
        auto began = clock::now();
        call(code[i]);
        seconds[i] += std::chrono::duration<double>(clock::now() - began).count() / runs;
      }
    stack.clear();
    return {names, seconds};
  }

  static void replace(Tensor& old, const Tensor& fresh, const c10::OperatorHandle& op) {
    TORCH_CHECK(
        old.sizes() == fresh.sizes() && old.strides() == fresh.strides() &&
            fresh.storage_offset() == old.storage_offset() &&
            fresh.storage().nbytes() == old.storage().nbytes(),
        op.schema().name(), " gave a tensor of another form than when it was recorded");
    std::swap(old.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(),
              fresh.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  }

  // The batch whose places are in row k of `rows`.
  void take(const Tensor& data, const Tensor& labels, const Tensor& rows, int64_t k) {
    if (where.defined() && data.is_contiguous() && rows.is_contiguous()) {
      point(data, rows.const_data_ptr<int64_t>() + k * rows.size(1));
    } else {
      gather(inputs, data, rows, k);
      here();
    }
    gather(targets, labels, rows, k);
  }

  // The batch that is in `inputs`.
  void here() {
    if (where.defined()) point(inputs, nullptr);
  }

  void point(const Tensor& data, const int64_t* row) {
    const int64_t n = where.numel(), size = data.nbytes() / std::max<int64_t>(data.size(0), 1);
    const int64_t begin = reinterpret_cast<int64_t>(data.const_data_ptr());
    int64_t* to = where.data_ptr<int64_t>();
    for (int64_t i = 0; i < n; i++) to[i] = begin + (row ? row[i] : i) * size;
  }

  static void gather(Tensor& out, const Tensor& data, const Tensor& rows, int64_t k) {
    if (!out.is_contiguous() || !data.is_contiguous() || !rows.is_contiguous()) {
      at::index_select_out(out, data, 0, rows.select(0, k));
      return;
    }
    const int64_t n = rows.size(1), *row = rows.data_ptr<int64_t>() + k * n;
    const size_t size = out.nbytes() / std::max<int64_t>(n, 1);
    const char* from = static_cast<const char*>(data.data_ptr());
    char* to = static_cast<char*>(out.data_ptr());
    for (int64_t i = 0; i < n; i++) std::memcpy(to + i * size, from + row[i] * size, size);
  }
};

enum Code : int64_t {
  ADD, SUB, MUL, DIV, MAX, MIN,         // vector, vector
  ADDS, RSUBS, MULS, RDIVS, MAXS, MINS, DIVS,  // vector, scalar; R: the scalar comes first
  AXPY, AXMY,                           // a + s b, a - s b
  NEG, SQRT, ABS, SIGN, EXP, LOG, COPY, // vector
  DOT,                                  // to a scalar
  S_ADD, S_SUB, S_MUL, S_DIV, S_MAX, S_MIN, S_NEG, S_SQRT, S_ABS, S_SIGN, S_EXP, S_LOG,
  GRADIENT,                             // of the loss, at a vector
};

struct Op {
  int64_t code, dst, a, b, s;
};

constexpr int64_t BLOCK = 2048;

struct Rule : torch::CustomClassHolder {
  std::vector<Op> ops;
  int64_t once, temporaries, vectors, scalars;

  // `flat` has five numbers an operation, of which the first `once` run before the first step only.
  // Vectors below 0 are temporaries: -1, -2, ...
  Rule(std::vector<int64_t> flat, int64_t once, int64_t temporaries, int64_t vectors,
       int64_t scalars)
      : once(once), temporaries(temporaries), vectors(vectors), scalars(scalars) {
    for (size_t i = 0; i + 4 < flat.size(); i += 5)
      ops.push_back({flat[i], flat[i + 1], flat[i + 2], flat[i + 3], flat[i + 4]});
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
void block(const Op& op, T* d, const T* a, const T* b, T s, int64_t n) {
  switch (op.code) {
    case ADD: return each(d, n, [=](int64_t i) { return a[i] + b[i]; });
    case SUB: return each(d, n, [=](int64_t i) { return a[i] - b[i]; });
    case MUL: return each(d, n, [=](int64_t i) { return a[i] * b[i]; });
    case DIV: return each(d, n, [=](int64_t i) { return a[i] / b[i]; });
    case MAX: return each(d, n, [=](int64_t i) { return a[i] < b[i] ? b[i] : a[i]; });
    case MIN: return each(d, n, [=](int64_t i) { return a[i] > b[i] ? b[i] : a[i]; });
    case ADDS: return each(d, n, [=](int64_t i) { return a[i] + s; });
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
    case COPY: return each(d, n, [=](int64_t i) { return a[i]; });
  }
}

double scalar(int64_t code, double a, double b) {
  switch (code) {
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

// Kernels only: neither autograd nor what Python listens to.
struct Bare {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_python{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// One client's walk: the memory of a rule, and its steps.
template <typename T>
struct Walk {
  Program& program;
  const Rule& rule;
  std::vector<T*> vectors;
  std::vector<double> numbers;
  std::vector<T> blocks;
  std::vector<Tensor> kept;
  int64_t n;

  Walk(Program& program, const Rule& rule, at::TensorList given, std::vector<double> constants)
      : program(program), rule(rule), numbers(std::move(constants)),
        blocks(rule.temporaries * BLOCK), n(program.x.numel()) {
    for (auto& tensor : given) vectors.push_back(tensor.data_ptr<T>());
  }

  T* at(int64_t vector, int64_t from) {
    return vector < 0 ? &blocks[(-vector - 1) * BLOCK] : vectors[vector] + from;
  }

  void fused(size_t first, size_t last) {
    for (int64_t from = 0; from < n; from += BLOCK) {
      int64_t m = std::min(BLOCK, n - from);
      for (size_t i = first; i < last; i++) {
        const Op& op = rule.ops[i];
        block<T>(op, at(op.dst, from), at(op.a, from), at(op.b, from), T(numbers[op.s]), m);
      }
    }
  }

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

  // Only the first gradient of a step belongs to the path: others leave the buffers as they are.
  void gradient(const T* at, bool first) {
    T* x = program.x.data_ptr<T>();
    if (at != x) std::memcpy(x, at, n * sizeof(T));
    if (!first) for (auto& buffer : program.buffers) kept.push_back(buffer.clone());
    program.run();
    for (size_t i = 0; i < kept.size(); i++) program.buffers[i].copy_(kept[i]);
    kept.clear();
  }

  // Operations from one to another; the loss of the first gradient among them.
  double run(size_t from, size_t to) {
    bool first = true;
    double loss = 0;
    for (size_t i = from; i < to;) {
      const Op& op = rule.ops[i];
      if (op.code < DOT) {
        size_t last = i;
        while (last < to && rule.ops[last].code < DOT) last++;
        fused(i, last);
        i = last;
        continue;
      }
      if (op.code == GRADIENT) {
        gradient(vectors[op.a], first);
        if (first) loss = program.loss.template item<double>();
        first = false;
      } else if (op.code == DOT) {
        numbers[op.dst] = dot(vectors[op.a], vectors[op.b]);
      } else {
        numbers[op.dst] = scalar(op.code, numbers[op.a], numbers[op.b]);
      }
      i++;
    }
    return loss;
  }
};

// The local steps of some clients, one part after the other.
//
// A part has a program and a rule (handles), vectors (where the model comes from, where it goes to,
// and those of the rule), the rule's constants, and for each step a row of places in data and labels.
struct Parts {
  at::IntArrayRef programs, rules;
  at::TensorList vectors;
  at::ArrayRef<double> constants;
  at::TensorList data, labels, rows;
  const volatile uint8_t* stop;
  double* losses;

  template <typename T>
  void run() {
    size_t vector = 0, constant = 0;
    for (size_t i = 0; i < programs.size(); i++) {
      auto& program = *reinterpret_cast<Program*>(programs[i]);
      auto& rule = *reinterpret_cast<const Rule*>(rules[i]);
      const Tensor &from = vectors[vector], &to = vectors[vector + 1];
      Walk<T> walk(program, rule, vectors.slice(vector + 2, rule.vectors),
                   constants.slice(constant, rule.scalars).vec());
      copy(program.x, from);
      walk.run(0, rule.once);
      for (int64_t k = 0; k < rows[i].size(0); k++) {
        TORCH_CHECK(!*stop, "stopped");
        program.take(data[i], labels[i], rows[i], k);
        *losses++ = walk.run(rule.once, rule.ops.size());
      }
      copy(to, program.x);
      vector += 2 + rule.vectors;
      constant += rule.scalars;
    }
  }

  static void copy(const Tensor& to, const Tensor& from) {
    if (to.data_ptr() != from.data_ptr()) to.copy_(from);
  }
};

// Runs the parts; the mean loss of every step.
Tensor walk(at::IntArrayRef programs, at::IntArrayRef rules, at::TensorList vectors,
            at::ArrayRef<double> constants, at::TensorList data, at::TensorList labels,
            at::TensorList rows, const Tensor& stop) {
  Bare bare;
  int64_t steps = 0;
  for (auto& some : rows) steps += some.size(0);
  Tensor losses = at::empty({steps}, at::kDouble);
  Parts parts{programs, rules, vectors, constants, data, labels, rows,
              stop.data_ptr<uint8_t>(), losses.data_ptr<double>()};
  if (vectors[0].scalar_type() == at::kDouble) parts.run<double>();
  else parts.run<float>();
  return losses;
}

// An object as a number: torch takes 15 us to look at an object among the arguments of a call.
// Whoever uses the number keeps the object.
template <typename T>
int64_t handle(const c10::intrusive_ptr<T>& object) {
  return reinterpret_cast<int64_t>(object.get());
}

// Give memory that was freed back to the system.
void trim() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

TORCH_LIBRARY_FRAGMENT(undrift, m) {
  m.def("trim", trim);
  m.def("walk", walk);
  m.class_<Rule>("Rule")
      .def(torch::init<std::vector<int64_t>, int64_t, int64_t, int64_t, int64_t>())
      .def("handle", handle<Rule>);
  m.class_<Program>("Program")
      .def(torch::init<Tensor, Tensor, Tensor, Tensor, std::vector<Tensor>>())
      .def("begin", [](const c10::intrusive_ptr<Program>& p, std::string name, std::string overload,
                       bool fresh) { p->begin(std::move(name), std::move(overload), fresh); })
      .def("integer", [](const c10::intrusive_ptr<Program>& p, int64_t v) { p->push(v); })
      .def("real", [](const c10::intrusive_ptr<Program>& p, double v) { p->push(v); })
      .def("flag", [](const c10::intrusive_ptr<Program>& p, bool v) { p->push(v); })
      .def("text", [](const c10::intrusive_ptr<Program>& p, std::string v) { p->push(v); })
      .def("none", [](const c10::intrusive_ptr<Program>& p) { p->push(IValue()); })
      .def("tensor", [](const c10::intrusive_ptr<Program>& p, Tensor v) { p->push(v); })
      .def("generator", [](const c10::intrusive_ptr<Program>& p, at::Generator v) { p->push(v); })
      .def("ints", &Program::ints)
      .def("floats", &Program::floats)
      .def("bools", &Program::bools)
      .def("tensors", &Program::tensors)
      .def("maybe_tensors", &Program::maybe_tensors)
      .def("dtype_of", &Program::dtype_of)
      .def("device_of", &Program::device_of)
      .def("number", &Program::number)
      .def("out", &Program::out)
      .def("read_rows_in_place", [](const c10::intrusive_ptr<Program>& p, Tensor where) {
        p->where = std::move(where);
      })
      .def("release", [](const c10::intrusive_ptr<Program>& p, Tensor t) {
        p->code.back().done.push_back(std::move(t));
      })
      .def("skip", [](const c10::intrusive_ptr<Program>& p) { p->out(Tensor()); })
      .def("handle", handle<Program>)
      .def("times", [](const c10::intrusive_ptr<Program>& p, int64_t runs) {
        Bare bare;
        p->here();
        return p->times(runs);
      })
      .def("run", [](const c10::intrusive_ptr<Program>& p) {
        Bare bare;
        p->here();
        p->run();
      });
}

}  // namespace
