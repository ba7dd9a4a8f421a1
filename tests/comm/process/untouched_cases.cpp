#include "comm/process/untouched_cases.h"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "comm/process/mismatch_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using detail::Transport;
using Counts = std::vector<std::int64_t>;

/// What an operation reads and writes, of one count per member.
struct Buffers {
  Buffers(const Group& group, std::int64_t count)
      : counts(static_cast<std::size_t>(group.size()), count),
        one(filled(count, group.index() + 1)),
        all(filled(count * group.size(), group.index() + 1)) {}

  static at::Tensor filled(std::int64_t count, std::int64_t value) {
    return at::full({count}, value, at::kFloat);
  }

  Counts counts;
  at::Tensor one;
  at::Tensor all;
};

struct Operation {
  const char* name;
  /// Carries it out, and waits for it.
  std::function<void(Transport&, const Group&, const Buffers&)> run;
};

std::vector<Operation> operations() {
  return {
      {"all_reduce",
       [](auto& transport, const auto&, const auto& with) {
         transport.all_reduce(with.all, ReduceOp::sum)->wait();
       }},
      {"broadcast", [](auto& transport, const auto&,
                       const auto& with) { transport.broadcast(with.all, 0)->wait(); }},
      {"all_gather_into_tensor",
       [](auto& transport, const auto&, const auto& with) {
         transport.all_gather(with.all, with.one, with.counts)->wait();
       }},
      {"reduce_scatter_tensor",
       [](auto& transport, const auto&, const auto& with) {
         transport.reduce_scatter(with.one, with.all, with.counts, ReduceOp::max)->wait();
       }},
      {"all_to_all_single",
       [](auto& transport, const auto&, const auto& with) {
         transport.all_to_all(with.all, with.all.clone(), with.counts, with.counts)->wait();
       }},
      {"gather",
       [](auto& transport, const auto& group, const auto& with) {
         const bool is_root = group.index() == 0;
         transport.gather(is_root ? with.all : with.all.narrow(0, 0, 0), with.one, with.counts, 0)
             ->wait();
       }},
      {"scatter",
       [](auto& transport, const auto& group, const auto& with) {
         const bool is_root = group.index() == 0;
         transport.scatter(with.one, is_root ? with.all : with.all.narrow(0, 0, 0), with.counts, 0)
             ->wait();
       }},
      {"send",
       [](auto& transport, const auto& group, const auto& with) {
         // From the first to the second; the others learn of it when they meet them.
         if (group.index() == 0) return transport.send(with.all, 1, 0)->wait();
         if (group.index() == 1) return transport.receive(with.all, 0, 0)->wait();
         transport.check({"barrier", ""});
         transport.barrier();
       }},
  };
}

void check_untouched(const Group& group, const Operation& operation, std::int64_t count) {
  SCOPED_TRACE(concat(operation.name, " of ", count, " on group ", group.name()));
  const Buffers given(group, count);
  Transport& transport = detail::connect(group);
  const bool is_message = std::string_view(operation.name) == "send";
  const char* op = is_message && group.index() == 1 ? "recv" : operation.name;
  try {
    if (!is_message || group.index() < 2) {
      transport.check({op, group.index() == 0 ? "one thing" : "another"});
    }
    operation.run(transport, group, given);
    ADD_FAILURE() << "the mismatch was not found";
  } catch (const CommError& error) {
    // Who has no part in a message may find the others gone.
    const bool is_told = !is_message || group.index() < 2;
    const std::string expected = is_told ? "the ranks do not agree: " : "";
    EXPECT_THAT(error.what(), testing::HasSubstr(expected));
  }
  const Buffers expected(group, count);
  EXPECT_TRUE(given.one.equal(expected.one));
  EXPECT_TRUE(given.all.equal(expected.all));
}

}  // namespace

void check_outputs_untouched(World& world) {
  // Goes along with what is compared, and does not.
  const std::vector<std::int64_t> sizes = {5, 300'000};
  auto groups = all_groups_of(world.size(), 4);
  // The world's is needed afterwards.
  std::erase(groups, world.group().ranks());
  std::size_t next = 0;
  for (const auto& operation : operations()) {
    for (const auto count : sizes) {
      const auto& ranks = groups[next++];
      if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) continue;
      check_untouched(world.group(ranks), operation, count);
    }
  }
}

}  // namespace tessera::test
