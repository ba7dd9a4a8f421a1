#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "tessera/tensor/op_plan.h"

namespace tessera::detail {

/// One call of an op, carried out as its plan says: arguments are brought into the layouts that it
/// needs, the op runs on local parts, and results become DTensors.
class LocalCall {
 public:
  /// The op's arguments are the last ones on the stack; `run` replaces them by its results.
  LocalCall(const c10::OperatorHandle& op, const OpTraits& traits, const OpPlan& plan,
            torch::jit::Stack& stack);

  void run();

 private:
  /// A written argument, and what the op wrote to in its stead where its layout had to change.
  struct Written {
    std::size_t argument;
    std::optional<std::size_t> element;
    at::Tensor tensor;
    at::Tensor substitute;
    Layout layout;
  };

  /// On a rank outside of the mesh: only the shapes of the results are worked out.
  void run_outside();
  void check_strict() const;
  void localize_arguments();
  c10::IValue localize_list(std::size_t argument, const c10::IValue& value);
  c10::IValue localize_optional_list(std::size_t argument, const c10::IValue& value);
  at::Tensor localize(std::size_t argument, std::optional<std::size_t> element,
                      const at::Tensor& tensor);
  at::Tensor localize_input(std::size_t argument, std::optional<std::size_t> element,
                            const at::Tensor& tensor);
  /// An argument that is written, and has the layout in which that is done.
  at::Tensor localize_written(std::size_t argument, std::optional<std::size_t> element,
                              const at::Tensor& tensor, const Layout& layout);
  at::Tensor localize_out(std::size_t argument, std::optional<std::size_t> element,
                          const at::Tensor& tensor);
  /// The layout that a written argument has afterwards, where it had to change before.
  [[nodiscard]] const Layout& layout_after(std::size_t argument, const Layout& before) const;
  void call();
  void write_back();
  void wrap_results();
  at::Tensor wrap(const at::Tensor& local);
  [[nodiscard]] at::Tensor make_result(const at::Tensor& local, const Layout& layout,
                                       const GlobalStrides& strides) const;
  /// Marks the result of a view op that does not share memory with what it views.
  at::Tensor marked(at::Tensor result, const at::Tensor& local) const;
  /// What such a result remembers of the first argument.
  [[nodiscard]] CopiedView view_of_first(const at::Tensor& result, bool was_moved,
                                         bool was_copied) const;
  /// The written argument that result `index` is; for lists, its element.
  const at::Tensor* written(std::size_t argument, std::optional<std::size_t> element) const;

  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  const OpPlan& plan_;
  torch::jit::Stack& stack_;
  std::size_t base_;
  /// Keeps the mesh alive while the arguments are replaced.
  at::Tensor first_;
  const DeviceMesh* mesh_ = nullptr;
  std::size_t next_input_ = 0;
  std::size_t next_output_ = 0;
  c10::SmallVector<Written, 2> written_;
};

}  // namespace tessera::detail
