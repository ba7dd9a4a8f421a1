#include "tessera/comm/refusal.h"

#include <exception>

#include "tessera/base/check.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/route.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {

Complaint complain(const at::Tensor& local) {
  if (!local.defined()) {
    return {"an undefined tensor",
            "pass the rank's part, or an empty tensor of the right dtype outside of the mesh"};
  }
  const auto* wrapped = wrapped_meta(local);
  if (wrapped != nullptr && wrapped->kind() == WrappedMeta::Kind::distributed) {
    return {"a distributed tensor", "pass its local part, or call redistribute on it"};
  }
  if (local.layout() != at::kStrided) {
    return {concat("a tensor of layout ", local.layout()),
            "pass a strided tensor, e.g. by to_dense"};
  }
  if (local.is_quantized()) {
    return {"a quantized tensor", "pass its int_repr, or dequantize it"};
  }
  return {};
}

Complaint complain_about_shape(const at::Tensor& local, const std::optional<Shape>& expected,
                               const Layout& from) {
  if (!expected || local.sizes() == at::IntArrayRef(*expected)) return {};
  return {concat("a local tensor of shape [", joined(local.sizes(), ","), "]"),
          concat("in ", from, " it is [", joined(*expected, ","), "]")};
}

void refuse(WorldState& world, const std::optional<Group>& participants, const std::string& what) {
  if (participants && participants->size() > 1 && world.options().check) {
    try {
      (void)connect(*participants).check_records({kRedistribute, concat("invalid: ", what)}, {});
    } catch (const Error&) {
      std::throw_with_nested(InvalidArgument(what));
    }
  }
  throw InvalidArgument(what);
}

at::Tensor plain_values(const at::Tensor& local) {
  settle(local);
  if (local.is_conj() || local.is_neg()) return local.resolve_conj().resolve_neg();
  return local;
}

}  // namespace tessera::detail
