#include <gmock/gmock.h>

#include "comm/collectives_inputs.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"

// What calls throw that are wrong on all ranks: the same everywhere.

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

using CollectiveCall = std::function<void(const Group&)>;

/// Expects `InvalidArgument` with exactly this text on every rank, and a group that still works.
void expect_refused(std::int64_t ranks, const CollectiveCall& call, const std::string& text) {
  SCOPED_TRACE(text);
  run_ranks(
      ranks,
      [&](World& world) {
        EXPECT_EQ(thrown_by<InvalidArgument>([&] { call(world.group()); }), text);
        EXPECT_EQ(all_reduce(at::ones({1}), ReduceOp::sum, world.group()).item<double>(),
                  world.size());
      },
      test_options());
}

const at::Tensor& undefined() {
  static const at::Tensor none;
  return none;
}

TEST(CollectivesErrorTest, TensorsMustBeUsable) {
  const auto sparse = [] { return at::ones({2, 2}).to_sparse(); };
  for (const std::int64_t ranks : {1, 3}) {
    expect_refused(
        ranks, [](const Group& group) { (void)all_reduce(undefined(), ReduceOp::sum, group); },
        "all_reduce: an undefined tensor given as x; pass a defined one");
    expect_refused(
        ranks, [](const Group& group) { (void)all_gather(undefined(), 0, group); },
        "all_gather: an undefined tensor given as x; pass a defined one");
    expect_refused(
        ranks, [&](const Group& group) { (void)reduce_scatter(sparse(), 0, ReduceOp::sum, group); },
        "reduce_scatter: x is sparse or quantized; pass a strided tensor, e.g. by "
        "to_dense");
    expect_refused(
        ranks, [](const Group& group) { (void)broadcast(undefined(), 0, group); },
        "broadcast: an undefined tensor given as x; pass a defined one");
    expect_refused(
        ranks, [&](const Group& group) { (void)scatter(sparse(), 0, 0, group); },
        "scatter: x is sparse or quantized; pass a strided tensor, e.g. by to_dense");
    expect_refused(
        ranks, [](const Group& group) { (void)gather(undefined(), 0, 0, group); },
        "gather: an undefined tensor given as x; pass a defined one");
    expect_refused(
        ranks, [](const Group& group) { (void)all_to_all(undefined(), {}, {}, group); },
        "all_to_all: an undefined tensor given as x; pass a defined one");
    expect_refused(
        ranks,
        [](const Group& group) {
          (void)permute(undefined(), {{0, 0}}, group);
        },
        "permute: an undefined tensor given as x; pass a defined one");
    expect_refused(
        ranks,
        [](const Group& group) {
          (void)all_reduce(Tensors{at::ones({1}), undefined()}, ReduceOp::sum, group);
        },
        "all_reduce: an undefined tensor given as x; pass a defined one");
  }
}

TEST(CollectivesErrorTest, ReductionsMustBeDefined) {
  const auto refuses = [](at::ScalarType type, ReduceOp op, const std::string& why) {
    const at::Tensor x = at::zeros({4}, at::kFloat).to(type);
    expect_refused(
        2, [&](const Group& group) { (void)all_reduce(x, op, group); }, "all_reduce: " + why);
    expect_refused(
        2, [&](const Group& group) { (void)reduce_scatter(x, 0, op, group); },
        "reduce_scatter: " + why);
  };
  const std::string average =
      " given; an average needs a floating or complex dtype: convert first, or use sum";
  refuses(at::kLong, ReduceOp::avg, "avg of int64" + average);
  refuses(at::kBool, ReduceOp::avg, "avg of bool" + average);
  refuses(at::kUInt16, ReduceOp::avg, "avg of uint16" + average);
  const std::string order = " given; complex numbers have no order: use sum, avg or product";
  refuses(at::kComplexFloat, ReduceOp::min, "min of complex64" + order);
  refuses(at::kComplexDouble, ReduceOp::max, "max of complex128" + order);
  const std::string bits = " given; bitwise ops need an integer dtype or bool";
  refuses(at::kFloat, ReduceOp::bxor, "bxor of float32" + bits);
  refuses(at::kBFloat16, ReduceOp::band, "band of bfloat16" + bits);
  refuses(at::kComplexFloat, ReduceOp::bor, "bor of complex64" + bits);
  expect_refused(
      2,
      [](const Group& group) {
        const at::Tensor x = at::zeros({4}, at::kByte).view(at::kBits8);
        (void)all_reduce(x, ReduceOp::sum, group);
      },
      "all_reduce: sum of bits8 given, which has no arithmetic; convert first");
}

TEST(CollectivesErrorTest, DimsMustExist) {
  const at::Tensor x = at::ones({2, 3});
  const std::string why =
      "dim 2 given for a tensor of 2 dim(s); it must be at least -2 and less than 2";
  expect_refused(
      2, [&](const Group& group) { (void)all_gather(x, 2, group); }, "all_gather: " + why);
  expect_refused(
      2, [&](const Group& group) { (void)all_gather(Tensors{x}, 2, group); }, "all_gather: " + why);
  expect_refused(
      2, [&](const Group& group) { (void)gather(x, 2, 0, group); }, "gather: " + why);
  expect_refused(
      2, [&](const Group& group) { (void)scatter(x, 2, 0, group); }, "scatter: " + why);
  expect_refused(
      2, [&](const Group& group) { (void)reduce_scatter(x, 2, ReduceOp::sum, group); },
      "reduce_scatter: " + why);
  expect_refused(
      2, [&](const Group& group) { (void)reduce_scatter(at::ones({}), 0, ReduceOp::sum, group); },
      "reduce_scatter: dim 0 given for a tensor of 0 dim(s); it must be at least 0 and "
      "less than 0");
  expect_refused(
      2, [&](const Group& group) { (void)all_to_all(at::ones({}), {}, {}, group); },
      "all_to_all: a tensor without dims given; it is cut along dim 0");
}

TEST(CollectivesErrorTest, MembersMustExist) {
  const at::Tensor x = at::ones({2});
  const std::string why =
      " given for group world of 3 member(s); members are numbered from 0 by their place in the "
      "group";
  expect_refused(
      3, [&](const Group& group) { (void)broadcast(x, 3, group); }, "broadcast: root 3" + why);
  expect_refused(
      3, [&](const Group& group) { (void)scatter(x, 0, -1, group); }, "scatter: root -1" + why);
  expect_refused(
      3, [&](const Group& group) { (void)scatter(Tensors{}, 3, group); }, "scatter: root 3" + why);
  expect_refused(
      3, [&](const Group& group) { (void)gather(x, 0, 5, group); }, "gather: root 5" + why);
  expect_refused(
      3,
      [&](const Group& group) {
        (void)permute(x, {{0, 3}}, group);
      },
      "permute: destination 3" + why);
  expect_refused(
      3,
      [&](const Group& group) {
        (void)permute(x, {{-2, 0}}, group);
      },
      "permute: source -2" + why);
  expect_refused(
      3,
      [&](const Group& group) {
        (void)permute(x, Sizes{0, 1, -2}, group);
      },
      "permute: destination -2" + why);
}

TEST(CollectivesErrorTest, PermutationsMustBeOneToOne) {
  const at::Tensor x = at::ones({2});
  expect_refused(
      3,
      [&](const Group& group) {
        (void)permute(x, {{0, 1}, {0, 2}}, group);
      },
      "permute: member 0 given as source twice; a member can send to one other only");
  expect_refused(
      3,
      [&](const Group& group) {
        (void)permute(x, {{0, 1}, {2, 1}}, group);
      },
      "permute: member 1 given as destination twice; a member can receive from one "
      "other only");
  expect_refused(
      3,
      [&](const Group& group) {
        (void)permute(x, Sizes{1, 0}, group);
      },
      "permute: 2 destinations given for group world of 3 member(s); give one per "
      "member");
}

TEST(CollectivesErrorTest, SizesMustFit) {
  const at::Tensor x = at::ones({4, 2});
  const SplitOptions few{.sizes = {4}};
  const std::string number = "1 sizes given for group world of 2 member(s); give one per member";
  expect_refused(
      2, [&](const Group& group) { (void)all_gather(x, 0, group, few); }, "all_gather: " + number);
  expect_refused(
      2, [&](const Group& group) { (void)gather(x, 0, 0, group, few); }, "gather: " + number);
  expect_refused(
      2, [&](const Group& group) { (void)scatter(x, 0, 0, group, few); }, "scatter: " + number);
  const SplitOptions less{.sizes = {1, 2}};
  const std::string sum =
      "sizes [1,2] given for a tensor of 4 along dim 0; they must add up to that";
  expect_refused(
      2, [&](const Group& group) { (void)scatter(x, -2, 0, group, less); }, "scatter: " + sum);
  expect_refused(
      2, [&](const Group& group) { (void)reduce_scatter(x, 0, ReduceOp::sum, group, less); },
      "reduce_scatter: " + sum);
  expect_refused(
      2,
      [&](const Group& group) {
        (void)reduce_scatter(x, 0, ReduceOp::sum, group, {.sizes = {5, -1}});
      },
      "reduce_scatter: sizes [5,-1] given; none may be negative");
  expect_refused(
      1, [&](const Group& group) { (void)all_gather(x, 0, group, {.sizes = {3}}); },
      "all_gather: sizes [3] given, 3 for member 0, but its x has 4 along dim 0");
  expect_refused(
      1, [&](const Group& group) { (void)gather(x, 1, 0, group, {.sizes = {3}}); },
      "gather: sizes [3] given, 3 for member 0, but its x has 2 along dim 1");
}

TEST(CollectivesErrorTest, SplitsMustFit) {
  const at::Tensor x = at::ones({4, 2});
  expect_refused(
      3, [&](const Group& group) { (void)all_to_all(x, {}, {}, group); },
      "all_to_all: x has 4 along dim 0, which is not a multiple of the 3 members; give "
      "send_splits");
  expect_refused(
      2,
      [&](const Group& group) {
        (void)all_to_all(x, {2, 2}, {}, group);
      },
      "all_to_all: receive_splits given without send_splits; give both, or send_splits "
      "alone");
  expect_refused(
      2,
      [&](const Group& group) {
        (void)all_to_all(x, {}, {1, 2}, group);
      },
      "all_to_all: send_splits [1,2] given for a tensor of 4 along dim 0; they must add "
      "up to that");
  expect_refused(
      2, [&](const Group& group) { (void)all_to_all(x, {}, {4}, group); },
      "all_to_all: 1 send_splits given for group world of 2 member(s); give one per "
      "member");
  expect_refused(
      2,
      [&](const Group& group) {
        (void)all_to_all(x, {4}, {2, 2}, group);
      },
      "all_to_all: 1 receive_splits given for group world of 2 member(s); give one per "
      "member");
  expect_refused(
      1, [&](const Group& group) { (void)all_to_all(x, {3}, {4}, group); },
      "all_to_all: receive_splits [3] given in a group of one, which sends itself [4]");
}

TEST(CollectivesErrorTest, PiecesMustFit) {
  const at::Tensor x = at::ones({2});
  run_ranks(
      2,
      [&](World& world) {
        const Tensors two = {x, x};
        const auto call = [&] { (void)scatter(two, 0, world.group()); };
        if (world.rank() == 1) {
          EXPECT_EQ(thrown_by<InvalidArgument>(call),
                    "scatter: 2 piece(s) given, but not on the root; only the root passes pieces");
        } else {
          EXPECT_THAT(thrown_by<CommError>(call), HasSubstr("only the root passes pieces"));
        }
      },
      test_options());
  expect_refused(
      1,
      [&](const Group& group) {
        (void)scatter(Tensors{x, x}, 0, group);
      },
      "scatter: 2 piece(s) given for group world of 1 member(s); give one per member");
  run_ranks(
      2,
      [&](World& world) {
        const auto call = [&] {
          const Tensors pieces = {x, at::ones({3}, at::kLong)};
          (void)scatter(world.rank() == 0 ? pieces : Tensors{}, 0, world.group());
        };
        if (world.rank() == 0) {
          EXPECT_EQ(
              thrown_by<InvalidArgument>(call),
              "scatter: pieces float32[2] and int64[3] given; all must have the same dtype and "
              "device");
        } else {
          EXPECT_THAT(thrown_by<CommError>(call),
                      HasSubstr("all must have the same dtype and device"));
        }
      },
      test_options());
}

TEST(CollectivesErrorTest, MessagesNeedAnotherRank) {
  const at::Tensor x = at::ones({2});
  run_ranks(2, [&](World& world) {
    const auto group = world.group();
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { send(x, world.rank(), group); }),
              concat("send: member ", world.rank(),
                     " given, which is the calling one; a rank cannot exchange messages with "
                     "itself"));
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { (void)recv(x, 2, group); }),
              "recv: source 2 given for group world of 2 member(s); members are numbered from 0 by "
              "their place in the group");
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { send(x, 5, group); }),
              "send: destination 5 given for group world of 2 member(s); members are numbered from "
              "0 by their place in the group");
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { send(x, 1 - world.rank(), group, -1); }),
              "send: tag -1 given; it must be from 0 to 1000000");
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { (void)recv(x, 1 - world.rank(), group, 1000001); }),
              "recv: tag 1000001 given; it must be from 0 to 1000000");
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { (void)recv(undefined(), 0, group); }),
              "recv: an undefined tensor given as like; pass a defined one");
  });
}

}  // namespace
}  // namespace tessera::test
