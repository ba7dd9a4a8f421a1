#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/group.h"
#include "tessera/layout/box_map.h"

namespace tessera::detail {

/// A move of one tensor's boxes between the ranks of a group.
struct BoxMove {
  const BoxMap& from;
  const BoxMap& to;
  /// All ranks of both maps are members.
  const Group& group;
  /// What it is done for, as `CommDebugMode` shows it.
  std::string cause;
};

/// Returns new memory for what the rank holds in `map`: one contiguous tensor per piece, whose values
/// are not set.
[[nodiscard]] std::vector<at::Tensor> new_pieces(const BoxMap& map, std::int64_t rank,
                                                 const at::TensorOptions& options);

/// Fills this rank's pieces of `move.to` from all ranks' pieces of `move.from`. Tensors may be strided
/// and have the boxes' shapes and one dtype, `options`'s, on all ranks.
///
/// All members of the group must call it. Counted as one `all_to_all_single`, with the bytes that the
/// rank needs and does not hold; nothing is communicated when no rank needs any. Values move bit for
/// bit. Where every rank has at most one piece on each side, engines that reach each other's memory
/// copy straight from piece to piece.
void exchange_boxes(const BoxMove& move, const std::vector<at::Tensor>& out,
                    const std::vector<at::Tensor>& in, const at::TensorOptions& options);

}  // namespace tessera::detail
