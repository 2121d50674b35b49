// Programs: the gradient of a batch, as the operators of a traced step on preallocated memory.
//
// Emitted by emit.py.

#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace {

using at::Tensor;
using c10::IValue;

// A call of a torch operator, with tensors in the program's memory.
struct Call {
  c10::OperatorHandle op;
  bool fresh;  // returns new tensors, whose memory replaces that of `outs`; else writes into `outs`
  std::vector<IValue> args;
  std::vector<Tensor> outs;
  std::vector<Tensor> released;  // their memory is freed after this call, the last that reads it
};

struct Program : torch::CustomClassHolder {
  std::vector<Call> code;
  std::vector<IValue> stack;
  Tensor x, inputs, targets, loss;
  Tensor addresses;  // if defined: addresses of the batch's rows, which are then not gathered
  std::vector<Tensor> buffers;

  Program(Tensor x, Tensor inputs, Tensor targets, Tensor loss, std::vector<Tensor> buffers)
      : x(x), inputs(inputs), targets(targets), loss(loss), buffers(std::move(buffers)) {}

  // Emission: `begin` starts a call, the others add its arguments in order.
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

  // Compute loss and gradient of the batch in `inputs` and `targets` at `x`.
  void run() {
    for (auto& step : code) call(step);
    stack.clear();
  }

  void call(Call& step) {
    stack.assign(step.args.begin(), step.args.end());
    step.op.callBoxed(stack);
    if (step.fresh)
      for (size_t i = 0; i < step.outs.size(); i++)
        if (step.outs[i].defined()) replace(step.outs[i], stack[i].toTensor(), step.op);
    for (auto& t : step.released)
      t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().clear();
  }

  // The names of the operators, and the mean seconds of each over several runs.
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

  // Give `old` the memory of a new result. Later calls hold `old` or views of its storage, so the
  // storage stays the same object and only its data pointer is swapped.
  static void replace(Tensor& old, const Tensor& fresh, const c10::OperatorHandle& op) {
    TORCH_CHECK(
        old.sizes() == fresh.sizes() && old.strides() == fresh.strides() &&
            fresh.storage_offset() == old.storage_offset() &&
            fresh.storage().nbytes() == old.storage().nbytes(),
        op.schema().name(), " gave a tensor of another form than when it was traced");
    std::swap(old.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(),
              fresh.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  }

  // Load the batch whose positions are in row k of `rows`.
  void take(const Tensor& data, const Tensor& labels, const Tensor& rows, int64_t k) {
    if (addresses.defined() && data.is_contiguous() && rows.is_contiguous()) {
      point(data, rows.const_data_ptr<int64_t>() + k * rows.size(1));
    } else {
      gather(inputs, data, rows, k);
      here();
    }
    gather(targets, labels, rows, k);
  }

  // Use the batch that is in `inputs`.
  void here() {
    if (addresses.defined()) point(inputs, nullptr);
  }

  void point(const Tensor& data, const int64_t* row) {
    const int64_t n = addresses.numel(), size = data.nbytes() / std::max<int64_t>(data.size(0), 1);
    const int64_t begin = reinterpret_cast<int64_t>(data.const_data_ptr());
    int64_t* to = addresses.data_ptr<int64_t>();
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

}  // namespace
