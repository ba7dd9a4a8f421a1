#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/tessera.h>

#include "gpt.h"
#include "text.h"

namespace gpt {

/// What happens along the mesh dim `dp`, over which batches are cut.
enum class Batches { none, data_parallel, fully_sharded };
/// What happens along the mesh dim `tp`, over which layers are cut.
enum class Layers { none, tensor_parallel, sequence_parallel };

/// How the network is spread over a mesh.
struct Style {
  Batches batches = Batches::none;
  Layers layers = Layers::none;
};

/// Reads `dp`, `fsdp`, `tp`, `sp` or one of the first two with one of the last two: `fsdp+tp`.
/// Throws `tessera::InvalidArgument` otherwise.
[[nodiscard]] Style parse_style(std::string_view text);
[[nodiscard]] std::string to_string(const Style& style);
/// All that `parse_style` reads.
[[nodiscard]] const std::vector<std::string>& style_names();

/// The names of the mesh dims that a style needs: `dp`, `tp` or both.
[[nodiscard]] std::vector<std::string> mesh_dims_of(const Style& style);

/// Spreads a network in place. Throws `tessera::InvalidArgument` unless the mesh has the dims that the
/// style needs.
void spread(Gpt& model, const tessera::DeviceMesh& mesh, const Style& style);

/// Spreads a batch that all ranks know; nothing is communicated.
[[nodiscard]] Batch spread(const Batch& batch, const tessera::DeviceMesh& mesh);

}  // namespace gpt
