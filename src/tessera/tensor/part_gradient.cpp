#include "tessera/tensor/part_gradient.h"

#include "tessera/base/concat.h"

namespace tessera::detail {

std::optional<std::string> why_not_gradient_of_part(const Layout& tensor, const Layout& gradient) {
  for (std::size_t dim = 0; dim < tensor.placements().size(); ++dim) {
    if (tensor.mesh().sizes()[dim] == 1) continue;
    const Placement& held = tensor.placements()[dim];
    const Placement& declared = gradient.placements()[dim];
    if (is_sharded(held)) {
      if (declared == held) continue;
      return concat(tensor, ", cannot be ", declared, " along mesh dim ", dim,
                    ": every rank computes that of its own part; write ", held,
                    " there, as the tensor is");
    }
    const auto* partial = std::get_if<Partial>(&declared);
    const bool adds_up =
        partial != nullptr && (partial->op == ReduceOp::sum || partial->op == ReduceOp::avg);
    if (is_replicate(declared) || adds_up) continue;
    return concat(tensor, ", cannot be ", declared, " along mesh dim ", dim,
                  ": every rank computes one as large as the tensor; write R there if all compute "
                  "the same, P(sum) or P(avg) if theirs add up");
  }
  return std::nullopt;
}

}  // namespace tessera::detail
