#include "tessera/comm/claims.h"

#include <utility>
#include <variant>

#include "tessera/base/concat.h"
#include "tessera/base/hash.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {
namespace {

/// Of numbers alone: `Layout::hash` is that of an address.
std::uint64_t hash_of(const Claim& claim) {
  std::size_t hash =
      hash_combine(static_cast<std::size_t>(claim.output), static_cast<std::size_t>(claim.dtype));
  if (!claim.layout) return hash;
  hash = hash_combine(hash, hash_range(claim.layout->placements()));
  return hash_combine(hash, hash_range(claim.layout->shape()));
}

std::string text_of(const Claim& claim) {
  if (!claim.layout) return concat("asked for the shape of output ", claim.output, " of local_map");
  return concat("taken output ", claim.output, " of local_map for ",
                c10::getDtypeNames(claim.dtype).first, *claim.layout);
}

}  // namespace

void Claims::add(const Claim& claim) {
  if (latest_.capacity() < kMost) latest_.reserve(kMost);
  if (latest_.size() == kMost) {
    for (const Claim& each : latest_) older_ = hash_combine(older_, hash_of(each));
    latest_.clear();
  }
  latest_.push_back(claim);
}

Claims Claims::take() {
  Claims taken = *this;
  latest_.clear();
  older_ = 0;
  return taken;
}

std::uint64_t Claims::hash() const {
  std::uint64_t hash = older_;
  for (const Claim& each : latest_) hash = hash_combine(hash, hash_of(each));
  return hash;
}

std::string Claims::to_string() const {
  if (empty()) return "";
  std::vector<std::string> texts;
  for (const Claim& each : latest_) texts.push_back(text_of(each));
  return concat(", having ", joined(texts, ", "));
}

void claim(const DeviceMesh& mesh, const Claim& made) {
  if (mesh.size() == 1 || !mesh.world().state().options().check) return;
  mesh.group().state().claims.add(made);
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    // A dim of all ranks has the same group.
    const std::int64_t size = mesh.size(dim);
    if (size > 1 && size < mesh.size()) mesh.group(dim).state().claims.add(made);
  }
}

Claims Transport::take_claims(const Fingerprint& fingerprint) {
  if (claims_ == nullptr || claims_->empty() || fingerprint.is_message()) return {};
  return claims_->take();
}

const char* advice_on_claims() {
  return "; where the size of a result depends on values or on the rank, pass out_shapes to "
         "local_map, {std::nullopt} to have the ranks ask one another";
}

}  // namespace tessera::detail
