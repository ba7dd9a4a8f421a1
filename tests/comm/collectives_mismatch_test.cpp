#include <gmock/gmock.h>

#include "comm/collectives_inputs.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"

// What calls throw that do not fit together, or are wrong on one rank only: on all ranks.

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using CollectiveCall = std::function<void(const Group&)>;

/// Rank 0 makes one call, the others another: everybody gets a `CommError` that shows both, and the
/// group cannot be used any more.
void expect_mismatch(const CollectiveCall& first, const CollectiveCall& others,
                     const std::string& shown, const std::string& other_shown) {
  SCOPED_TRACE(shown + " against " + other_shown);
  for (const std::int64_t ranks : {2, 3}) {
    run_ranks(
        ranks,
        [&](World& world) {
          const auto message =
              thrown_by<CommError>([&] { (world.rank() == 0 ? first : others)(world.group()); });
          EXPECT_THAT(message, AllOf(HasSubstr("the ranks do not agree: rank 0 calls " + shown),
                                     HasSubstr("rank 1 calls " + other_shown)));
          EXPECT_THAT(thrown_by<CommError>([&] { barrier(world.group()); }),
                      HasSubstr("cannot be used any more"));
        },
        test_options());
  }
}

TEST(CollectivesMismatchTest, ReductionsMustAgree) {
  const at::Tensor x = at::ones({4});
  const auto reduces = [](const at::Tensor& data, ReduceOp op) {
    return [=](const Group& group) { (void)all_reduce(data, op, group); };
  };
  const auto sum = reduces(x, ReduceOp::sum);
  expect_mismatch(sum, reduces(x, ReduceOp::max), "all_reduce(float32[4] sum)",
                  "all_reduce(float32[4] max)");
  expect_mismatch(sum, reduces(at::ones({5}), ReduceOp::sum), "all_reduce(float32[4] sum)",
                  "all_reduce(float32[5] sum)");
  expect_mismatch(sum, reduces(at::ones({2, 2}), ReduceOp::sum), "all_reduce(float32[4] sum)",
                  "all_reduce(float32[2,2] sum)");
  expect_mismatch(sum, reduces(at::ones({4}, at::kInt), ReduceOp::sum),
                  "all_reduce(float32[4] sum)", "all_reduce(int32[4] sum)");
  // One has no elements, the other has.
  expect_mismatch(sum, reduces(at::ones({0}), ReduceOp::sum), "all_reduce(float32[4] sum)",
                  "all_reduce(float32[0] sum)");
  const auto scatters = [&](std::int64_t dim, Sizes sizes) {
    return [=](const Group& group) {
      sizes.size() == 0 || static_cast<std::int64_t>(sizes.size()) == group.size()
          ? (void)reduce_scatter(at::ones({6, 6}), dim, ReduceOp::sum, group, {.sizes = sizes})
          : (void)reduce_scatter(at::ones({6, 6}), dim, ReduceOp::sum, group, {.sizes = {0, 6, 0}});
    };
  };
  expect_mismatch(scatters(0, {}), scatters(1, {}), "reduce_scatter_tensor(float32[6,6] dim 0",
                  "reduce_scatter_tensor(float32[6,6] dim 1");
  expect_mismatch(scatters(0, {}), scatters(0, {2, 4}), "reduce_scatter_tensor(float32[6,6] dim 0",
                  "reduce_scatter_tensor(float32[6,6] dim 0 sizes [");
}

TEST(CollectivesMismatchTest, GathersMustAgree) {
  const auto gathers = [](const at::Tensor& data, std::int64_t dim) {
    return [=](const Group& group) { (void)all_gather(data, dim, group); };
  };
  expect_mismatch(gathers(at::ones({4, 3}), 0), gathers(at::ones({4, 3}), 1),
                  "all_gather_into_tensor(float32[*,3] dim 0)",
                  "all_gather_into_tensor(float32[4,*] dim 1)");
  expect_mismatch(gathers(at::ones({4, 3}), 0), gathers(at::ones({4, 2}), 0),
                  "all_gather_into_tensor(float32[*,3] dim 0)",
                  "all_gather_into_tensor(float32[*,2] dim 0)");
  expect_mismatch(gathers(at::ones({4}), 0), gathers(at::ones({4}, at::kDouble), 0),
                  "all_gather_into_tensor(float32[*] dim 0)",
                  "all_gather_into_tensor(float64[*] dim 0)");
  const auto roots = [](std::int64_t root) {
    return [=](const Group& group) { (void)gather(at::ones({4}), 0, root, group); };
  };
  expect_mismatch(roots(0), roots(1), "gather(float32[*] dim 0 root 0)",
                  "gather(float32[*] dim 0 root 1)");
}

TEST(CollectivesMismatchTest, RootsAndOperationsMustAgree) {
  const at::Tensor x = at::ones({4});
  const auto broadcasts = [&](std::int64_t root) {
    return [=](const Group& group) { (void)broadcast(x, root, group); };
  };
  expect_mismatch(broadcasts(0), broadcasts(1), "broadcast(float32[4] root 0)",
                  "broadcast(float32[4] root 1)");
  expect_mismatch(
      broadcasts(0), [&](const Group& group) { (void)all_reduce(x, ReduceOp::sum, group); },
      "broadcast(float32[4] root 0)", "all_reduce(float32[4] sum)");
  expect_mismatch(
      broadcasts(0), [](const Group& group) { barrier(group); }, "broadcast(float32[4] root 0)",
      "barrier()");
  const auto scatters = [&](std::int64_t root) {
    return [=](const Group& group) { (void)scatter(at::ones({6}), 0, root, group); };
  };
  expect_mismatch(scatters(0), scatters(1), "scatter(float32[*] dim 0 sizes [",
                  "scatter(float32[*] dim 0 sizes [");
  expect_mismatch(
      [&](const Group& group) {
        (void)permute(x, {{0, 1}}, group);
      },
      [&](const Group& group) {
        (void)permute(x, {{1, 0}}, group);
      },
      "all_to_all_single(float32[4] to [1,-1", "all_to_all_single(float32[4] to [-1,0");
  expect_mismatch([&](const Group& group) { (void)all_gather_object("x", group); }, broadcasts(0),
                  "all_gather_object()", "broadcast(float32[4] root 0)");
}

TEST(CollectivesMismatchTest, SplitsMustFitTogether) {
  run_ranks(
      3,
      [](World& world) {
        // Rank 1 expects one row more from rank 2 than that sends.
        Sizes receive = {2, 2, 2};
        if (world.rank() == 1) receive[2] = 3;
        const auto message = thrown_by<CommError>([&] {
          (void)all_to_all(at::ones({6, 2}), receive, {2, 2, 2}, world.group());
        });
        EXPECT_THAT(
            message,
            AllOf(StartsWith(
                      concat("all_to_all_single on group world, rank ", world.rank(), ", after ")),
                  HasSubstr("the ranks do not agree: rank 2 sends 2 row(s) to rank 1, which "
                            "expects 3")));
        EXPECT_THAT(thrown_by<CommError>([&] { barrier(world.group()); }),
                    HasSubstr("cannot be used any more"));
      },
      test_options());
  const auto told = [](const Sizes& receive) {
    return [=](const Group& group) {
      Sizes send(static_cast<std::size_t>(group.size()), 0);
      send[0] = 6;
      Sizes own = receive;
      if (!own.empty()) own.resize(send.size(), 0);
      (void)all_to_all(at::ones({6}), own, send, group);
    };
  };
  expect_mismatch(told({}), told({6}), "all_to_all_single(float32[*] to be told)",
                  "all_to_all_single(float32[*])");
}

TEST(CollectivesMismatchTest, MessagesMustFitTogether) {
  run_ranks(
      2,
      [](World& world) {
        const auto call = [&] {
          if (world.rank() == 0) {
            send(at::ones({4}), 1, world.group());
          } else {
            (void)recv(at::ones({2, 2}), 0, world.group());
          }
        };
        EXPECT_THAT(thrown_by<CommError>(call),
                    AllOf(HasSubstr("rank 0 calls send(float32[4] tag 0)"),
                          HasSubstr("rank 1 calls recv(float32[2,2] tag 0)")));
      },
      test_options());
}

TEST(CollectivesMismatchTest, AWrongCallOfOneRankFailsOnAll) {
  const std::vector<std::pair<CollectiveCall, CollectiveCall>> calls = {
      {[](const Group& group) { (void)all_reduce(at::ones({2}), ReduceOp::bor, group); },
       [](const Group& group) { (void)all_reduce(at::ones({2}), ReduceOp::sum, group); }},
      {[](const Group& group) { (void)all_gather(at::ones({2}), 3, group); },
       [](const Group& group) { (void)all_gather(at::ones({2}), 0, group); }},
      {[](const Group& group) {
         (void)all_gather(at::ones({2}), 0, group, {.sizes = {1, 2, 2}});
       },
       [](const Group& group) {
         (void)all_gather(at::ones({2}), 0, group, {.sizes = {1, 2, 2}});
       }},
      {[](const Group& group) {
         (void)all_to_all(at::ones({4}), {}, {1, 2, 2}, group);
       },
       [](const Group& group) {
         (void)all_to_all(at::ones({5}), {}, {1, 2, 2}, group);
       }},
      {[](const Group& group) { (void)all_to_all(at::ones({4}), {}, {}, group); },
       [](const Group& group) { (void)all_to_all(at::ones({3}), {}, {}, group); }},
      {[](const Group& group) { (void)gather(at::ones({2}), 0, 7, group); },
       [](const Group& group) { (void)gather(at::ones({2}), 0, 1, group); }},
      {[](const Group& group) { (void)scatter(at::Tensor(), 0, 0, group); },
       [](const Group& group) { (void)scatter(at::ones({3}), 0, 0, group); }},
      {[](const Group& group) { (void)permute(at::ones({2}), Sizes{1}, group); },
       [](const Group& group) {
         (void)permute(at::ones({2}), Sizes{1, 2, 0}, group);
       }},
      {[](const Group& group) { (void)broadcast(at::ones({2}), -1, group); },
       [](const Group& group) { (void)broadcast(at::ones({2}), 0, group); }},
      {[](const Group& group) { (void)reduce_scatter(at::ones({}), 0, ReduceOp::sum, group); },
       [](const Group& group) { (void)reduce_scatter(at::ones({1}), 0, ReduceOp::sum, group); }}};
  for (const auto& [wrong, right] : calls) {
    run_ranks(
        3,
        [&](World& world) {
          if (world.rank() == 0) {
            (void)thrown_by<InvalidArgument>([&] { wrong(world.group()); });
          } else {
            EXPECT_THAT(thrown_by<CommError>([&] { right(world.group()); }),
                        HasSubstr("(invalid: "));
          }
        },
        test_options());
  }
}

TEST(CollectivesMismatchTest, BackwardPassesAreComparedToo) {
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor x = at::ones({2}).requires_grad_();
        const at::Tensor reduced = all_reduce(x, ReduceOp::sum, world.group());
        const at::Tensor gathered = all_gather(x, 0, world.group());
        const auto message = thrown_by<CommError>(
            [&] { (world.rank() == 0 ? reduced : gathered).sum().backward(); });
        EXPECT_THAT(message, AllOf(HasSubstr("rank 0 calls all_reduce(float32[2] sum)"),
                                   HasSubstr("rank 1 calls reduce_scatter_tensor(float32[4] dim 0 "
                                             "sizes [2,2] sum)")));
      },
      test_options());
}

TEST(CollectivesMismatchTest, AsynchronousCallsFailWhenUsed) {
  run_ranks(
      2,
      [](World& world) {
        const auto message = thrown_by<CommError>([&] {
          const at::Tensor y = all_reduce(at::ones({2 + world.rank()}), ReduceOp::sum,
                                          world.group(), {.async_op = true});
          (void)(y + 1);
        });
        EXPECT_THAT(message, HasSubstr("the ranks do not agree: rank 0 calls all_reduce(float32[2] "
                                       "sum), rank 1 calls all_reduce(float32[3] sum)"));
      },
      test_options());
}

}  // namespace
}  // namespace tessera::test
