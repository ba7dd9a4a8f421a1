#include "tessera/tensor/local_map_check.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/pending_tensor.h"
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
  settle(tensor);
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

/// What one rank tells the others of all that it returns.
struct Report {
  std::string problem;
  /// The kinds of all leaves, as numbers.
  std::vector<int> kinds;
  /// Of the tensors, and a hash of their values where others hold copies.
  std::vector<PartRecord> parts;
  std::vector<std::size_t> digests;
};

std::string written(const Report& report) {
  std::ostringstream stream;
  stream << report.kinds.size() << ' ' << joined(report.kinds, " ") << ' ' << report.parts.size();
  for (std::size_t i = 0; i < report.parts.size(); ++i) {
    const PartRecord& part = report.parts[i];
    stream << ' ' << static_cast<int>(part.dtype) << ' ' << part.shape.size() << ' '
           << joined(part.shape, " ") << ' ' << report.digests[i];
  }
  stream << '\n' << report.problem;
  return std::move(stream).str();
}

/// The next number of a text, as a count.
std::size_t next_count(std::istream& stream) {
  std::size_t count = 0;
  stream >> count;
  return count;
}

Report parsed(const std::string& text) {
  Report report;
  std::istringstream stream(text);
  report.kinds.resize(next_count(stream));
  for (int& kind : report.kinds) stream >> kind;
  report.parts.resize(next_count(stream));
  for (PartRecord& part : report.parts) {
    part.dtype = static_cast<at::ScalarType>(next_count(stream));
    part.shape.resize(next_count(stream));
    for (std::int64_t& size : part.shape) stream >> size;
    report.digests.push_back(next_count(stream));
  }
  report.problem = text.substr(text.find('\n') + 1);
  return report;
}

std::string describe_kinds(const Report& report) {
  std::vector<const char*> kinds;
  for (const int kind : report.kinds) kinds.push_back(to_string(static_cast<LeafKind>(kind)));
  return concat(kinds.size(), " output value(s) (", joined(kinds), ")");
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

bool has_copies(const AskedOutput& output, const DeviceMesh& mesh) {
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const bool is_copy = is_replicate((*output.placements)[static_cast<std::size_t>(dim)]);
    if (is_copy && mesh.size(dim) > 1) return true;
  }
  return false;
}

Report report_on(const MappedLeaves& outputs, const std::vector<AskedOutput>& asked,
                 const std::string& problem, const DeviceMesh& mesh) {
  Report report{problem, {}, {}, {}};
  for (const auto& leaf : outputs) report.kinds.push_back(static_cast<int>(leaf.kind));
  for (const auto& output : asked) {
    report.parts.push_back({output.local->scalar_type(), output.local->sizes().vec()});
    report.digests.push_back(has_copies(output, mesh) ? digest_of(*output.local) : 0);
  }
  return report;
}

void check_reports(const std::vector<Report>& reports, const std::string& problem,
                   const DeviceMesh& mesh) {
  TESSERA_CHECK(problem.empty(), problem);
  const auto rank_at = [&](std::size_t i) {
    return mesh.shape().rank_at(static_cast<std::int64_t>(i));
  };
  for (std::size_t i = 0; i < reports.size(); ++i) {
    TESSERA_CHECK(reports[i].problem.empty(), "local_map: what rank ", rank_at(i),
                  " returns is refused there: ", reports[i].problem);
  }
  for (std::size_t i = 1; i < reports.size(); ++i) {
    TESSERA_CHECK(reports[i].kinds == reports[0].kinds, "local_map: rank ", rank_at(i), " returns ",
                  describe_kinds(reports[i]), ", but rank ", rank_at(0), " returns ",
                  describe_kinds(reports[0]), "; all ranks must return the same tree");
  }
}

/// `rank 1 (f32[2]) from rank 0 (f32[3])` for all ranks that differ; empty when none does.
std::string differences(const AskedOutput& output, std::size_t place,
                        const std::vector<Report>& reports, const DeviceMesh& mesh) {
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const std::int64_t first = first_copy(mesh, *output.placements, i);
    const Report& own = reports[static_cast<std::size_t>(i)];
    const Report& other = reports[static_cast<std::size_t>(first)];
    if (own.parts[place] == other.parts[place] && own.digests[place] == other.digests[place]) {
      continue;
    }
    found.push_back(concat("rank ", mesh.shape().rank_at(i), " (", own.parts[place], ") from rank ",
                           mesh.shape().rank_at(first), " (", other.parts[place], ")"));
  }
  return joined(found);
}

/// The layout of an output of which the ranks, in the mesh's order, hold `parts`.
Layout layout_of_parts(const AskedOutput& output, const std::vector<PartRecord>& parts,
                       const DeviceMesh& mesh) {
  const std::string name = concat("local_map: output ", output.index);
  const auto given = output.shape == nullptr ? std::nullopt : std::optional<Shape>(*output.shape);
  return checked_layout(name.c_str(), mesh, *output.placements,
                        shape_of_parts(name, parts, mesh, *output.placements, given));
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

IndexedLayouts layouts_of_parts(const std::vector<AskedOutput>& asked, const DeviceMesh& mesh) {
  std::vector<at::Tensor> locals;
  std::vector<std::size_t> indices;
  for (const auto& output : asked) {
    locals.push_back(*output.local);
    indices.push_back(output.index);
  }
  const CauseScope cause([&] { return concat("shape of local_map output ", joined(indices)); });
  const auto told = gather_parts(locals, mesh);
  IndexedLayouts layouts;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    std::vector<PartRecord> parts;
    for (const auto& rank : told) parts.push_back(rank[i]);
    layouts.emplace_back(asked[i].index, layout_of_parts(asked[i], parts, mesh));
  }
  return layouts;
}

IndexedLayouts compare_outputs(const MappedLeaves& outputs, const std::vector<AskedOutput>& asked,
                               const std::string& problem, const DeviceMesh& mesh) {
  const CauseScope cause("local_map check_outputs");
  const std::string own = written(report_on(outputs, asked, problem, mesh));
  std::vector<Report> reports;
  for (const auto& text : all_gather_object(own, mesh.group())) reports.push_back(parsed(text));
  check_reports(reports, problem, mesh);
  IndexedLayouts layouts;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const std::string found = differences(asked[i], i, reports, mesh);
    TESSERA_CHECK(found.empty(), "local_map: output ", asked[i].index, ", declared ",
                  to_string(*asked[i].placements), " on ", mesh,
                  ", differs between ranks that should hold copies: ", found,
                  "; reduce or gather it in the function, or declare what it is");
    std::vector<PartRecord> parts;
    for (const auto& report : reports) parts.push_back(report.parts[i]);
    layouts.emplace_back(asked[i].index, layout_of_parts(asked[i], parts, mesh));
  }
  return layouts;
}

}  // namespace tessera::detail
