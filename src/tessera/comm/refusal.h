#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/comm/group.h"
#include "tessera/layout/layout.h"

namespace tessera::detail {

class WorldState;

/// What is wrong with a local tensor, and what to do instead; empty when it can be moved.
struct Complaint {
  std::string given;
  std::string advice;
};

/// Complains about tensors that cannot be moved whatever the layouts are.
[[nodiscard]] Complaint complain(const at::Tensor& local);

/// Complains about a shape that is not the one in the layout, `expected`; nothing is outside of it.
[[nodiscard]] Complaint complain_about_shape(const at::Tensor& local,
                                             const std::optional<Shape>& expected,
                                             const Layout& from);

/// Throws `InvalidArgument` about this rank's arguments, and lets the participants know, who would
/// wait for it in vain: they get a `CommError` that says the same. Where all are wrong alike they
/// agree on that, and the group stays usable.
[[noreturn]] void refuse(WorldState& world, const std::optional<Group>& participants,
                         const std::string& what);

/// Returns the values of a tensor as they lie in memory; waits for one that is on its way.
[[nodiscard]] at::Tensor plain_values(const at::Tensor& local);

}  // namespace tessera::detail
