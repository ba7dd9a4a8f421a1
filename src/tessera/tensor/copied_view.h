#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

namespace tessera::detail {

class DTensorMeta;

// Note [Views that are copies]
//
// A view of a DTensor shares the memory of its local part where the layouts allow. Otherwise data had
// to move, and the part is a copy. It still behaves like a view: it remembers what it views, takes the
// values from there again when that was written to since, and what is written to it goes back there.
// Both are collective where the view's making was, which all ranks know alike: they follow from
// layouts, and from how often what is viewed was written to.

/// How a tensor of global sizes lies in (imagined) memory.
struct Geometry {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
};

/// Returns the global geometry of a DTensor.
[[nodiscard]] Geometry geometry_of(const at::Tensor& tensor);

/// What a view remembers of what it views.
struct CopiedView {
  enum class Kind : std::uint8_t {
    /// Shares the local memory of something that is a copy itself.
    alias,
    /// The local elements in the same order, copied because they could not be viewed so.
    reordered,
    /// Data moved: elements are found by the global geometries.
    moved,
    /// Made by an op of which that is not known. It can be read as long as what it views is the same.
    unknown,
  };

  Kind kind = Kind::moved;
  c10::intrusive_ptr<DTensorMeta> base;
  Geometry base_geometry;
  Geometry own_geometry;
  /// Counts the writes to what is viewed.
  c10::VariableVersion writes;
  /// How many of them the copy shows.
  std::uint32_t seen = 0;
};

/// Makes a view that is a copy show what was written to the tensor that it views. Does nothing for
/// other tensors. Collective. Throws `InvalidArgument` where it is not known how.
void bring_up_to_date(const at::Tensor& tensor);

/// Throws `InvalidArgument` for a view that is a copy of which `write_through` would not know how; `op`
/// is named.
void check_writable(const at::Tensor& tensor, const std::string& op);

/// Carries what was written to a view that is a copy on to the tensor that it views. Does nothing for
/// other tensors. Collective.
void write_through(const at::Tensor& tensor);

}  // namespace tessera::detail
