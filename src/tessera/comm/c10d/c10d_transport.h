#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/transport.h"

namespace tessera::detail {

class Channel;
class Messenger;
class SmallExchange;
struct SmallParts;
struct WatchedCall;

/// One rank's end of a group whose bytes a c10d backend moves: gloo, our mpi, or an adopted one.
///
/// Data that is only moved travels as integers of the same size, so every dtype can. What engines
/// reduce differently (NaN in min and max, rounding in half precision), or not at all, is exchanged
/// and reduced here, in the members' order, as the threads engine does. Parts of different sizes go
/// by an all-to-all with splits where the backend has nothing for them: nothing is padded. What is
/// small goes along with the comparison of the calls: Note [Small messages].
class C10dTransport : public Transport {
 public:
  /// `member` is this rank's place in the group.
  C10dTransport(std::shared_ptr<Channel> channel, std::size_t member);
  ~C10dTransport() override;

  [[nodiscard]] const char* engine() const override;
  void check(const Fingerprint& fingerprint) override;
  std::vector<std::int64_t> check_records(const Fingerprint& fingerprint,
                                          std::span<const std::int64_t> record) override;
  PendingPtr all_reduce(const at::Tensor& data, ReduceOp op) override;
  PendingPtr all_gather(const at::Tensor& out, const at::Tensor& in,
                        std::span<const std::int64_t> counts) override;
  PendingPtr reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                            std::span<const std::int64_t> counts, ReduceOp op) override;
  PendingPtr all_to_all(const at::Tensor& out, const at::Tensor& in,
                        std::span<const std::int64_t> receive_counts,
                        std::span<const std::int64_t> send_counts) override;
  PendingPtr broadcast(const at::Tensor& data, std::int64_t root) override;
  PendingPtr gather(const at::Tensor& out, const at::Tensor& in,
                    std::span<const std::int64_t> counts, std::int64_t root) override;
  PendingPtr scatter(const at::Tensor& out, const at::Tensor& in,
                     std::span<const std::int64_t> counts, std::int64_t root) override;
  PendingPtr send(const at::Tensor& data, std::int64_t to, std::int64_t tag) override;
  PendingPtr receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) override;
  void barrier() override;

 private:
  using Counts = std::vector<std::int64_t>;

  [[nodiscard]] std::int64_t size() const;
  /// Begins a call, with the arguments that `check` announced.
  [[nodiscard]] WatchedCall begin(const char* op);
  /// Compares the call that `check` has announced, and that has not been compared yet.
  void compare_announced();
  /// Compares what `check` has announced, and sends everybody their part on the way. Returns the call
  /// when all members' parts went along; nothing when they did not or nothing was announced, and the
  /// engine must move them.
  [[nodiscard]] std::optional<WatchedCall> move_along(const SmallParts& parts);
  /// Takes the members' words; throws when their records differ.
  void compare_records(const WatchedCall& call, const Fingerprint& fingerprint,
                       const Claims& claims, std::span<const std::int64_t> words);
  /// What a member has sent along, as a flat tensor of so many elements, and of the dtype of `like`.
  [[nodiscard]] at::Tensor received(std::size_t member, std::int64_t count,
                                    const at::Tensor& like) const;
  /// The same as `count` elements at `begin` of a flat tensor.
  void take_received(std::size_t member, const at::Tensor& out, std::int64_t begin,
                     std::int64_t count) const;
  /// `out` becomes the reduction of the members' parts, `own` being this rank's.
  void reduce_received(const at::Tensor& out, const at::Tensor& own, ReduceOp op) const;
  [[nodiscard]] bool all_reduce_small(const at::Tensor& data, ReduceOp op);
  [[nodiscard]] bool all_gather_small(const at::Tensor& out, const at::Tensor& in,
                                      std::span<const std::int64_t> counts);
  [[nodiscard]] bool reduce_scatter_small(const at::Tensor& out, const at::Tensor& in,
                                          std::span<const std::int64_t> counts, ReduceOp op);
  [[nodiscard]] bool all_to_all_small(const at::Tensor& out, const at::Tensor& in,
                                      std::span<const std::int64_t> receive_counts,
                                      std::span<const std::int64_t> send_counts);
  [[nodiscard]] bool broadcast_small(const at::Tensor& data, std::int64_t root);
  [[nodiscard]] bool barrier_small();
  [[nodiscard]] Counts exchange_words(const WatchedCall& call, std::span<const std::int64_t> words);
  [[nodiscard]] Counts exchange_small_words(const WatchedCall& call,
                                            std::span<const std::int64_t> words);
  /// `own` is this rank's call as `pack_call` packs it, `words` are all members' records.
  [[noreturn]] void throw_difference(const WatchedCall& call, std::span<const std::int64_t> own,
                                     std::span<const std::int64_t> words, std::size_t other);
  [[nodiscard]] PendingPtr exchange_parts(const WatchedCall& call, const at::Tensor& out,
                                          const at::Tensor& in, Counts receive_counts,
                                          Counts send_counts, std::function<void()> finish);
  [[nodiscard]] PendingPtr gather_parts(const WatchedCall& call, const at::Tensor& out,
                                        const at::Tensor& in, const Counts& counts,
                                        std::function<void()> finish);
  [[nodiscard]] PendingPtr reduce_natively(const WatchedCall& call, const at::Tensor& data,
                                           ReduceOp op);
  [[nodiscard]] PendingPtr reduce_gathered(const WatchedCall& call, const at::Tensor& data,
                                           ReduceOp op);
  void reduce_in_chunks(const WatchedCall& call, const at::Tensor& data, ReduceOp op);
  [[nodiscard]] PendingPtr scatter_reduced(const WatchedCall& call, const at::Tensor& out,
                                           const at::Tensor& in, const Counts& counts, ReduceOp op);

  std::shared_ptr<Channel> channel_;
  std::size_t member_;
  /// Of the check that was passed last, for messages about the operation that follows.
  std::string arguments_;
  std::uint64_t sequence_ = 0;
  std::unique_ptr<Messenger> messenger_;
  /// What was announced and is compared by the operation that follows; only where there is `small_`.
  std::optional<Fingerprint> announced_;
  std::unique_ptr<SmallExchange> small_;
};

}  // namespace tessera::detail
