// `launch` runs all local steps of several clients without returning to Python: for each step the
// gradient (program.h), then the update rule (kernel.h).

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <utility>
#include <vector>

#include "kernel.h"
#include "program.h"

namespace {

// While alive, operators go directly to torch's kernels, past autograd and Python dispatch modes.
struct Bare {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_python{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// The launch that is running in this thread; after an error, the one that failed. If a call fails
// before its first launch (an argument of a wrong type), it is the 0 that the last call left.
thread_local int64_t running = 0;

int64_t failed_launch() { return std::exchange(running, 0); }

// The launches of a call, run one after the other.
//
// Each has a program and a kernel (handles), vectors (source and target of the model, then those of
// the kernel), the kernel's scalars, and one row per step: positions of its batch in data and
// labels.
struct Launches {
  at::IntArrayRef programs, kernels;
  at::TensorList vectors;
  at::ArrayRef<double> constants;
  at::TensorList data, labels, rows;
  const volatile uint8_t* stop;
  double* losses;

  template <typename T>
  void run() {
    size_t vector = 0, constant = 0;
    for (size_t i = 0; i < programs.size(); i++) {
      running = i;
      auto& program = *reinterpret_cast<Program*>(programs[i]);
      auto& kernel = *reinterpret_cast<const Kernel*>(kernels[i]);
      const Tensor &from = vectors[vector], &to = vectors[vector + 1];
      BoundKernel<T> bound(program, kernel, vectors.slice(vector + 2, kernel.vectors),
                           constants.slice(constant, kernel.scalars).vec());
      copy(program.x, from);
      bound.run(0, kernel.prologue);
      for (int64_t k = 0; k < rows[i].size(0); k++) {
        TORCH_CHECK(!*stop, "stopped");
        program.take(data[i], labels[i], rows[i], k);
        *losses++ = bound.run(kernel.prologue, kernel.code.size());
      }
      copy(to, program.x);
      vector += 2 + kernel.vectors;
      constant += kernel.scalars;
    }
  }

  static void copy(const Tensor& to, const Tensor& from) {
    if (to.data_ptr() != from.data_ptr()) to.copy_(from);
  }
};

// Run the launches; returns the mean loss of every step.
Tensor launch(at::IntArrayRef programs, at::IntArrayRef kernels, at::TensorList vectors,
              at::ArrayRef<double> constants, at::TensorList data, at::TensorList labels,
              at::TensorList rows, const Tensor& stop) {
  Bare bare;
  int64_t steps = 0;
  for (auto& some : rows) steps += some.size(0);
  Tensor losses = at::empty({steps}, at::kDouble);
  Launches launches{programs, kernels, vectors, constants, data, labels, rows,
                    stop.data_ptr<uint8_t>(), losses.data_ptr<double>()};
  if (vectors[0].scalar_type() == at::kDouble) launches.run<double>();
  else launches.run<float>();
  running = 0;
  return losses;
}

// The address of an object, as torch takes 15 us for each object among the arguments of a call. It
// does not own the object: the caller must keep it alive.
template <typename T>
int64_t handle(const c10::intrusive_ptr<T>& object) {
  return reinterpret_cast<int64_t>(object.get());
}

// Return freed memory to the system.
void trim() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

TORCH_LIBRARY_FRAGMENT(undrift, m) {
  m.def("trim", trim);
  m.def("launch", launch);
  m.def("failed_launch", failed_launch);
  m.class_<Kernel>("Kernel")
      .def(torch::init<std::vector<std::string>, std::vector<int64_t>, int64_t, int64_t, int64_t,
                       int64_t>())
      .def("handle", handle<Kernel>);
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
      .def("read_rows_in_place", [](const c10::intrusive_ptr<Program>& p, Tensor addresses) {
        p->addresses = std::move(addresses);
      })
      .def("release", [](const c10::intrusive_ptr<Program>& p, Tensor t) {
        p->code.back().released.push_back(std::move(t));
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
