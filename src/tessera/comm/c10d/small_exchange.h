#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/c10d/alarm.h"
#include "tessera/comm/c10d/channel.h"

namespace tessera::detail {

/// Note [Small messages]
///
/// A collective of gloo passes through threads of its own: whoever calls it wakes one, which is woken
/// by the one that reads the connection, and wakes the caller. A comparison of the ranks' calls before
/// each collective doubles that. A message between two is written by the caller itself and wakes only
/// the caller on the other side; and it needs no answer of the receiver when that has made room for it
/// before. So what is small goes in messages of our own over gloo's connections: every member sends to
/// each of the others what it calls and its data behind it, all in one, and everybody looks at the
/// calls before any of the data is used. Messages are at most as large as the room that is ready for
/// them, whatever the members call, so that ranks that do not agree cannot hurt each other.
///
/// There are two rooms for each member, taken in turns. The second one is announced before anything
/// is sent that the others could answer with the next message: so there always is one.

/// Exchanges small messages with all other members of a group, in the order of the calls.
class SmallExchange {
 public:
  using Bytes = std::span<const std::byte>;

  SmallExchange(std::shared_ptr<Channel> channel, std::size_t member);

  /// The most bytes of a message in a group of so many members; the same for all of them.
  [[nodiscard]] static std::size_t room(std::int64_t members);
  [[nodiscard]] std::size_t room() const { return room_; }

  /// Sends each member, but this one, `head` and its part of `parts` behind it, and waits for theirs;
  /// there may be no parts at all. Throws `CommError` when somebody does not come.
  void run(const WatchedCall& call, Bytes head, std::span<const Bytes> parts);
  /// What the member has sent, room for as much as it could be; valid until the next exchange.
  [[nodiscard]] std::byte* received(std::size_t member) const;

 private:
  /// What is exchanged with one member.
  struct Line {
    /// Taken in turns.
    at::Tensor rooms[2];
    WorkPtr receives[2];
    at::Tensor sent;
    WorkPtr send;
  };

  [[nodiscard]] std::size_t size() const { return lines_.size(); }
  void open(const WatchedCall& call);
  void make_room(const WatchedCall& call, std::size_t turn);
  void fill(Line& line, Bytes head, Bytes part) const;
  void wait(const WatchedCall& call, WorkPtr& work);

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Alarm> alarm_;
  std::size_t member_;
  std::size_t room_;
  /// By member; this rank's own is unused.
  std::vector<Line> lines_;
  /// Of the engine's messages; agreed on by the members.
  int tag_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace tessera::detail
