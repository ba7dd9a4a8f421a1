#include "tessera/tensor/local_map_check.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/global_shape.h"
#include "tessera/tensor/op_call.h"

namespace tessera::detail {
namespace {

/// Empty when contributions of that dtype can be reduced by `op`; see `collectives.h`.
const char* reduction_problem(ReduceOp op, at::ScalarType dtype) {
  switch (op) {
    case ReduceOp::avg:
      if (at::isFloatingType(dtype) || at::isComplexType(dtype)) return "";
      return "whole numbers have no average of their own dtype: use sum, or a floating dtype";
    case ReduceOp::min:
    case ReduceOp::max:
      return at::isComplexType(dtype) ? "complex numbers have no order" : "";
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      if (at::isIntegralType(dtype, /*includeBool=*/true)) return "";
      return "bits are reduced of integers and bools only";
    case ReduceOp::sum:
    case ReduceOp::product:
      return "";
  }
  return "";
}

/// A hash over the elements' bytes.
std::size_t digest_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  const auto bytes = static_cast<std::size_t>(values.nbytes());
  const auto* data = static_cast<const char*>(values.const_data_ptr());
  std::size_t digest = bytes;
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, std::min(sizeof(word), bytes - i));
    digest = hash_combine(digest, word);
  }
  return digest;
}

/// What one rank tells the others of one output: words without blanks.
struct Told {
  std::string shape;
  std::string digest;
  bool operator==(const Told&) const = default;
};

std::vector<Told> parse_told(const std::string& text) {
  std::vector<Told> told;
  std::istringstream stream(text);
  for (Told one; stream >> one.shape >> one.digest;) told.push_back(one);
  return told;
}

/// The position of the rank that has the first copy of what the one at `position` has.
std::int64_t first_copy(const DeviceMesh& mesh, const Placements& placements,
                        std::int64_t position) {
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    if (!is_replicate(placements[static_cast<std::size_t>(dim)])) continue;
    const std::int64_t stride = mesh.shape().stride(dim);
    position -= position / stride % mesh.size(dim) * stride;
  }
  return position;
}

bool has_copies(const CheckedOutput& output, const DeviceMesh& mesh) {
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const bool is_copy = is_replicate((*output.placements)[static_cast<std::size_t>(dim)]);
    if (is_copy && mesh.size(dim) > 1) return true;
  }
  return false;
}

/// `rank 1 (f32[2]) from rank 0 (f32[3])` for all ranks that differ; empty when none does.
std::string differences(const CheckedOutput& output, std::size_t place,
                        const std::vector<std::vector<Told>>& told, const DeviceMesh& mesh) {
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const std::int64_t first = first_copy(mesh, *output.placements, i);
    const Told& own = told[static_cast<std::size_t>(i)][place];
    const Told& other = told[static_cast<std::size_t>(first)][place];
    if (own == other) continue;
    found.push_back(concat("rank ", mesh.shape().rank_at(i), " (", own.shape, ") from rank ",
                           mesh.shape().rank_at(first), " (", other.shape, ")"));
  }
  return joined(found);
}

}  // namespace

void check_placements(const DeviceMesh& mesh, const Placements& placements) {
  const auto partials = std::count_if(placements.begin(), placements.end(), is_partial);
  const bool is_one_per_dim = static_cast<std::int64_t>(placements.size()) == mesh.ndim();
  if (is_one_per_dim && partials < 2) return;
  // Shard dims are looked at when the tensor is there.
  Placements others = placements;
  for (auto& placement : others) {
    if (is_one_per_dim && is_sharded(placement)) placement = Replicate();
  }
  (void)checked_layout("local_map: out_placements", mesh, others, {});
}

void check_output(std::size_t index, const MappedLeaf& leaf, const LeafPlacements* entry,
                  const DeviceMesh& mesh) {
  if (leaf.kind != LeafKind::tensor) {
    TESSERA_CHECK(entry == nullptr, "local_map: Non-tensor output ", index, " (",
                  to_string(leaf.kind), ") expects None placements but received ",
                  to_string(**entry), "; write std::nullopt for it in out_placements");
    return;
  }
  const at::Tensor& local = *leaf.tensor;
  TESSERA_CHECK(!is_dtensor(local),
                "local_map: torch.Tensor output expected but received a DTensor: ", "output ",
                index, " is ", describe_tensor(local),
                "; return its to_local, or call the function without local_map");
  TESSERA_CHECK(entry != nullptr, "local_map: tensor output ", index, ", ", describe_tensor(local),
                ", expects placements but received None; give its entry in out_placements");
  const auto name = [&] { return concat("local_map: output ", index); };
  if (c10::DeviceTypeName(local.device().type(), /*lower_case=*/true) != mesh.device_type()) {
    check_device(name().c_str(), local, mesh);
  }
  for (const auto& placement : **entry) {
    if (const auto* partial = std::get_if<Partial>(&placement)) {
      const char* problem = reduction_problem(partial->op, local.scalar_type());
      TESSERA_CHECK(*problem == '\0', name(), ", ", describe_tensor(local), ", cannot be ",
                    placement, ": ", problem);
      continue;
    }
    const auto* shard = std::get_if<Shard>(&placement);
    const auto* strided = std::get_if<StridedShard>(&placement);
    if (shard == nullptr && strided == nullptr) continue;
    const std::int64_t dim = shard != nullptr ? shard->dim : strided->dim;
    TESSERA_CHECK(dim >= -local.dim() && dim < local.dim(), name(), ", ", describe_tensor(local),
                  ", cannot be ", placement, ": it has ", local.dim(), " dim(s)");
  }
}

Shape exchanged_shape(std::size_t index, const at::Tensor& local, const DeviceMesh& mesh,
                      const Placements& placements, const FromLocalOptions& options) {
  const CauseScope cause([&] { return concat("shape of local_map output ", index); });
  try {
    return global_shape(local, mesh, placements, options);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat("local_map: output ", index, ": ", error.what()));
  }
}

void compare_copies(const std::vector<CheckedOutput>& outputs, const DeviceMesh& mesh) {
  std::vector<CheckedOutput> copies;
  std::string own;
  for (const auto& output : outputs) {
    if (!has_copies(output, mesh)) continue;
    copies.push_back(output);
    own += concat(short_name(output.local->scalar_type()), '[', joined(output.local->sizes(), ","),
                  "] ", digest_of(*output.local), '\n');
  }
  if (copies.empty()) return;
  const CauseScope cause("local_map check_outputs");
  std::vector<std::vector<Told>> told;
  for (const auto& text : all_gather_object(own, mesh.group())) told.push_back(parse_told(text));
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const std::string found = differences(copies[place], place, told, mesh);
    TESSERA_CHECK(found.empty(), "local_map: output ", copies[place].index, ", declared ",
                  to_string(*copies[place].placements), " on ", mesh,
                  ", differs between ranks that should hold copies: ", found,
                  "; reduce or gather it in the function, or declare what it is");
  }
}

}  // namespace tessera::detail
