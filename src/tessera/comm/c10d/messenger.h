#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/comm/c10d/channel.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// Sends and receives messages between two members of a group.
///
/// Those that were announced are compared first: both sides send each other what they call, so that
/// both notice when it differs and no data moves. A thread does it, since neither side may have to
/// wait for the other before it waits for the message; and where the engine can only wait to the end,
/// so that whoever waits can look around meanwhile.
class Messenger {
 public:
  Messenger(std::shared_ptr<Channel> channel, std::size_t member)
      : channel_(std::move(channel)), member_(member) {}

  /// Ends what is still under way.
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  /// The next message is to be compared; both sides must pass the same arguments.
  void announce(std::string arguments);

  PendingPtr send(const at::Tensor& data, std::int64_t to, std::int64_t tag);
  PendingPtr receive(const at::Tensor& data, std::int64_t from, std::int64_t tag);

 private:
  struct Transfer;
  struct Progress;
  class TransferPending;

  PendingPtr start(const at::Tensor& data, std::int64_t peer, std::int64_t tag, bool is_send);
  static void run_in_thread(Transfer transfer, const std::shared_ptr<Progress>& progress);
  static void run(const Transfer& transfer, Progress& progress);
  static void compare(const Transfer& transfer, Progress& progress);

  std::shared_ptr<Channel> channel_;
  std::size_t member_;
  std::optional<std::string> announced_;
  /// The last message of a thread by peer, tag and direction: the next one must come after it.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, std::shared_ptr<Progress>> last_;
  /// All that may be under way.
  std::vector<std::weak_ptr<Progress>> started_;
};

}  // namespace tessera::detail
