#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/comm/direct_exchange.h"
#include "tessera/comm/group.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// Where the messages of several tensors lie in the buffers of one all-to-all, as one rank sees it.
/// What goes to one peer lies together, values of the largest dtype first, padded to
/// `kBatchAlignment`: so all are aligned. What stays on the rank is in no buffer.
class BatchPacking {
 public:
  /// `elements` are the tensors' bytes per element. The parts must outlive this.
  BatchPacking(std::span<const std::shared_ptr<const RankStep>> parts,
               std::span<const std::int64_t> elements, const Group& group);

  /// A buffer, in units of `kUnit` bytes.
  struct Side {
    /// Per part and message, the byte at which it begins; -1 for the rank's own.
    std::vector<std::vector<std::int64_t>> begins;
    /// Per member.
    std::vector<std::int64_t> counts;
    std::int64_t size = 0;
  };
  static constexpr std::int64_t kUnit = 8;

  [[nodiscard]] const Side& sent() const { return sent_; }
  [[nodiscard]] const Side& received() const { return received_; }

 private:
  Side sent_;
  Side received_;
};

/// Exchanges several tensors by one all-to-all of packed buffers. For engines without access to each
/// other's memory.
[[nodiscard]] PendingPtr packed_batch_exchange(Transport& transport,
                                               std::shared_ptr<const BatchPacking> packing,
                                               std::vector<ExchangePart> parts, std::int64_t rank);

}  // namespace tessera::detail
