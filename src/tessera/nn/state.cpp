#include "tessera/nn/state.h"

#include <unordered_map>

#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/nn/load_value.h"
#include "tessera/nn/module_paths.h"
#include "tessera/nn/module_tensors.h"
#include "tessera/nn/near_names.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn {
namespace {

template <typename Map>
std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

LoadStateReport compare_names(const StateDict& own, const StateDict& given) {
  LoadStateReport report;
  for (const auto& [name, tensor] : own) {
    if (!given.contains(name)) report.missing.push_back(name);
  }
  for (const auto& [name, tensor] : given) {
    if (!own.contains(name)) report.unexpected.push_back(name);
  }
  return report;
}

/// `missing: 'fc.weight' (given: 'fc1.weight')`, at most a few.
std::string list_names(const char* title, const std::vector<std::string>& names,
                       const char* others_title, const std::vector<std::string>& others) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) {
    text += concat(i == 0 ? title : ", ", "'", names[i], "'");
    const auto near = detail::near_names(names[i], others, 1);
    if (!near.empty()) text += concat(" (", others_title, " '", near[0], "')");
  }
  if (names.size() > kShown) text += concat(", and ", names.size() - kShown, " more");
  return text;
}

std::string list_shapes(const StateDict& own, const StateDict& given) {
  std::string text;
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) continue;
    if (!found->second.defined()) {
      text += concat(text.empty() ? "" : ", ", "'", name, "' is undefined");
    } else if (found->second.sizes() != tensor.sizes()) {
      text +=
          concat(text.empty() ? "" : ", ", "'", name, "' is [", joined(found->second.sizes(), ","),
                 "], the module's is [", joined(tensor.sizes(), ","), "]");
    }
  }
  return text;
}

}  // namespace

namespace detail {

at::Tensor placed_like(const at::Tensor& like, const at::Tensor& value,
                       const LoadStateOptions& options) {
  const bool is_distributed = is_dtensor(value);
  if (!is_dtensor(like)) return is_distributed ? full_tensor(value) : value;
  if (is_distributed) return redistribute(value, mesh_of(like), placements_of(like));
  return distribute_tensor(value, mesh_of(like), placements_of(like),
                           {.src_data_rank = options.src_data_rank});
}

}  // namespace detail

StateDict state_dict(torch::nn::Module& module) {
  StateDict state;
  for (const auto& own : detail::all_tensors(module)) {
    state.emplace(own.name, own.tensor.detach());
  }
  return state;
}

StateDict full_state_dict(torch::nn::Module& module) {
  const at::NoGradGuard no_history;
  const tessera::detail::CauseScope cause("full_state_dict");
  std::map<std::string, at::Tensor> own;
  for (const auto& item : detail::all_tensors(module)) own.emplace(item.name, item.tensor);
  std::unordered_map<const c10::TensorImpl*, at::Tensor> gathered;
  StateDict state;
  for (const auto& [name, tensor] : own) {
    auto& whole = gathered[tensor.unsafeGetTensorImpl()];
    if (!whole.defined()) {
      whole = is_dtensor(tensor) ? full_tensor(tensor).clone() : tensor.clone();
    }
    state.emplace(name, whole);
  }
  return state;
}

std::map<std::string, LocalTensor> local_state_dict(torch::nn::Module& module) {
  std::map<std::string, LocalTensor> state;
  for (const auto& own : detail::all_tensors(module)) {
    const at::Tensor tensor = own.tensor.detach();
    if (is_dtensor(tensor)) {
      state.emplace(own.name, LocalTensor{to_local(tensor), layout_of(tensor)});
    } else {
      state.emplace(own.name, LocalTensor{tensor, std::nullopt});
    }
  }
  return state;
}

LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options) {
  const StateDict own = state_dict(module);
  auto report = compare_names(own, state);
  std::vector<std::string> problems;
  const auto add = [&](std::string text) {
    if (!text.empty()) problems.push_back(std::move(text));
  };
  if (options.strict) {
    add(list_names("missing: ", report.missing, "given is", report.unexpected));
    add(list_names("unexpected: ", report.unexpected, "the module has", names_of(own)));
  }
  const std::string shapes = list_shapes(own, state);
  if (!shapes.empty()) add("shapes that differ: " + shapes);
  TESSERA_CHECK(problems.empty(), "load_state_dict: the state does not fit ",
                detail::holder_name(module), "; ", joined(problems, "; "));
  const at::NoGradGuard no_history;
  const tessera::detail::CauseScope cause("load_state_dict");
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) continue;
    at::Tensor(tensor).copy_(detail::placed_like(tensor, found->second.detach(), options));
  }
  return report;
}

}  // namespace tessera::nn
