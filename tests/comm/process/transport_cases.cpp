#include "comm/process/transport_cases.h"

#include <array>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros_like.h>

#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using detail::connect;
using detail::PendingPtr;
using detail::Transport;
using Counts = std::vector<std::int64_t>;

constexpr std::array kMovedTypes = {
    at::kFloat, at::kDouble, at::kLong,     at::kInt,  at::kShort,        at::kChar,
    at::kByte,  at::kBool,   at::kBFloat16, at::kHalf, at::kComplexFloat, at::kComplexDouble};

/// Numbers that tell their origin: of one member, beginning with `first`.
at::Tensor numbers(std::int64_t member, std::int64_t first, std::int64_t count,
                   at::ScalarType type) {
  const at::Tensor flat = at::arange(first, first + count, at::kLong).mul(7).add(member * 3);
  return type == at::kBool ? flat.remainder(3).eq(0) : flat.remainder(101).to(type);
}

std::int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Sizes per member: equal, growing, some or all empty, all with one.
std::vector<Counts> count_patterns(std::int64_t members) {
  const auto n = static_cast<std::size_t>(members);
  std::vector<Counts> patterns = {Counts(n, 5), Counts(n, 0), Counts(n, 1)};
  Counts growing;
  Counts sparse;
  Counts single(n, 0);
  for (std::int64_t i = 0; i < members; ++i) {
    growing.push_back(2 * i + 1);
    sparse.push_back(i % 2 == 0 ? 0 : 4);
  }
  single[n - 1] = 17;
  patterns.insert(patterns.end(), {growing, sparse, single});
  return patterns;
}

void expect_same(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(actual.equal(expected)) << what << "\nactual " << actual << "\nexpected " << expected;
}

void check_gathers(const Group& group, const Counts& counts, at::ScalarType type) {
  Transport& transport = connect(group);
  const auto own = static_cast<std::size_t>(group.index());
  const std::string what = concat(c10::toString(type), " counts ", joined(counts, ","));
  std::vector<at::Tensor> parts;
  for (std::int64_t i = 0; i < group.size(); ++i) {
    parts.push_back(numbers(i, 0, counts[static_cast<std::size_t>(i)], type));
  }
  const at::Tensor all = at::cat(parts);
  const at::Tensor out = at::empty_like(all);
  transport.all_gather(out, parts[own], counts)->wait();
  expect_same(out, all, concat("all_gather ", what));
  // With each dtype another root, and all of them in all.
  for (const std::int64_t root : {static_cast<std::int64_t>(type) % group.size()}) {
    const bool is_root = group.index() == root;
    const at::Tensor gathered = at::zeros_like(is_root ? all : all.narrow(0, 0, 0));
    transport.gather(gathered, parts[own], counts, root)->wait();
    if (is_root) expect_same(gathered, all, concat("gather ", what));
    const at::Tensor scattered = at::zeros_like(parts[own]);
    transport.scatter(scattered, is_root ? all : at::empty({0}, all.options()), counts, root)
        ->wait();
    expect_same(scattered, parts[own], concat("scatter ", what));
  }
}

void check_all_to_all(const Group& group, std::int64_t salt, at::ScalarType type) {
  // From i to j go so many.
  const auto count = [&](std::int64_t i, std::int64_t j) { return (3 * i + 5 * j + salt) % 4; };
  Counts send_counts;
  Counts receive_counts;
  std::vector<at::Tensor> sent;
  std::vector<at::Tensor> expected;
  for (std::int64_t i = 0; i < group.size(); ++i) {
    send_counts.push_back(count(group.index(), i));
    receive_counts.push_back(count(i, group.index()));
    sent.push_back(numbers(group.index(), 10 * i, send_counts.back(), type));
    expected.push_back(numbers(i, 10 * group.index(), receive_counts.back(), type));
  }
  const at::Tensor out = at::empty({sum(receive_counts)}, sent[0].options());
  connect(group).all_to_all(out, at::cat(sent), receive_counts, send_counts)->wait();
  expect_same(out, at::cat(expected), concat("all_to_all ", c10::toString(type)));
}

void check_broadcasts(const Group& group, at::ScalarType type) {
  for (std::int64_t root = 0; root < group.size(); ++root) {
    for (const std::int64_t length : {0, 1, 7}) {
      const at::Tensor data = numbers(group.index(), 0, length, type).view({length, 1});
      connect(group).broadcast(data, root)->wait();
      expect_same(data.view({-1}), numbers(root, 0, length, type), "broadcast");
    }
  }
}

std::vector<ReduceOp> ops_for(at::ScalarType type) {
  std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::product};
  const bool is_float = at::isFloatingType(type);
  if (is_float || at::isComplexType(type)) ops.push_back(ReduceOp::avg);
  if (!at::isComplexType(type)) ops.insert(ops.end(), {ReduceOp::min, ReduceOp::max});
  if (!is_float && !at::isComplexType(type)) {
    ops.insert(ops.end(), {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor});
  }
  return ops;
}

at::Tensor reduced(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a.add(b);
    case ReduceOp::product:
      return a.mul(b);
    case ReduceOp::min:
      return at::minimum(a, b);
    case ReduceOp::max:
      return at::maximum(a, b);
    case ReduceOp::band:
      return a.bitwise_and(b);
    case ReduceOp::bor:
      return a.bitwise_or(b);
    case ReduceOp::bxor:
      return a.bitwise_xor(b);
  }
  return {};
}

/// Small integers, whose sums and products are exact in every dtype and order.
at::Tensor addends(std::int64_t member, std::int64_t count, at::ScalarType type) {
  const at::Tensor flat = at::arange(count, at::kLong).add(member).remainder(3).add(1);
  return type == at::kBool ? flat.eq(2) : flat.to(type);
}

at::Tensor reduced_addends(std::int64_t members, std::int64_t count, at::ScalarType type,
                           ReduceOp op) {
  at::Tensor result = addends(0, count, type);
  for (std::int64_t i = 1; i < members; ++i) result = reduced(result, addends(i, count, type), op);
  return op == ReduceOp::avg ? result.div(members) : result;
}

void check_reduction(const Group& group, at::ScalarType type, ReduceOp op) {
  Transport& transport = connect(group);
  const std::string what = concat(to_string(op), " of ", c10::toString(type));
  // The last one takes the way of large tensors.
  for (const std::int64_t count : {0, 1, 7, 70'000}) {
    const at::Tensor data = addends(group.index(), count, type);
    transport.all_reduce(data, op)->wait();
    expect_same(data, reduced_addends(group.size(), count, type, op), "all_reduce " + what);
  }
  for (const auto& counts : count_patterns(group.size())) {
    const std::int64_t total = sum(counts);
    const auto own = static_cast<std::size_t>(group.index());
    const at::Tensor in = addends(group.index(), total, type);
    const at::Tensor out = at::empty({counts[own]}, in.options());
    transport.reduce_scatter(out, in, counts, op)->wait();
    const auto begin = std::accumulate(
        counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(own), std::int64_t{0});
    expect_same(out, reduced_addends(group.size(), total, type, op).narrow(0, begin, counts[own]),
                "reduce_scatter " + what);
  }
}

}  // namespace

void check_moves(const Group& group) {
  for (const auto type : kMovedTypes) {
    for (const auto& counts : count_patterns(group.size())) check_gathers(group, counts, type);
    for (std::int64_t salt = 0; salt < 4; ++salt) check_all_to_all(group, salt, type);
    check_broadcasts(group, type);
  }
  connect(group).barrier();
}

void check_reductions(const Group& group) {
  for (const auto type : kMovedTypes) {
    for (const auto op : ops_for(type)) check_reduction(group, type, op);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto op : {ReduceOp::min, ReduceOp::max}) {
    for (std::int64_t member = 0; member < group.size(); ++member) {
      const at::Tensor data = at::full({3}, group.index() == member ? nan : 1.0, at::kFloat);
      connect(group).all_reduce(data, op)->wait();
      EXPECT_TRUE(data.isnan().all().item<bool>()) << to_string(op) << " lost NaN " << data;
    }
  }
}

void check_messages(const Group& group) {
  if (group.size() == 1) return;
  Transport& transport = connect(group);
  for (const bool compared : {true, false}) {
    // Everybody sends two messages of the same tag to everybody, then receives.
    std::vector<PendingPtr> sends;
    std::vector<at::Tensor> sent;
    const auto announce = [&](const char* op, std::int64_t length) {
      if (compared) transport.check({op, concat("int64[", length, "]")});
    };
    for (std::int64_t peer = 0; peer < group.size(); ++peer) {
      if (peer == group.index()) continue;
      for (const std::int64_t length : {6, 0, 3}) {
        sent.push_back(numbers(group.index(), peer + length, length, at::kLong));
        announce("send", length);
        sends.push_back(transport.send(sent.back(), peer, 4));
      }
    }
    for (std::int64_t peer = group.size() - 1; peer >= 0; --peer) {
      if (peer == group.index()) continue;
      for (const std::int64_t length : {6, 0, 3}) {
        const at::Tensor received = at::empty({length}, at::kLong);
        announce("recv", length);
        transport.receive(received, peer, 4)->wait();
        expect_same(received, numbers(peer, group.index() + length, length, at::kLong), "recv");
      }
    }
    for (const auto& pending : sends) pending->wait();
  }
}

void check_async(const Group& group) {
  Transport& transport = connect(group);
  constexpr std::int64_t kOperations = 6;
  std::vector<at::Tensor> data;
  std::vector<PendingPtr> pending;
  for (std::int64_t i = 0; i < kOperations; ++i) {
    data.push_back(at::full({1000}, i + group.index(), at::kLong));
    pending.push_back(i % 2 == 0 ? transport.all_reduce(data.back(), ReduceOp::sum)
                                 : transport.broadcast(data.back(), i % group.size()));
  }
  for (auto i = kOperations - 1; i >= 0; --i) pending[static_cast<std::size_t>(i)]->wait();
  const std::int64_t n = group.size();
  for (std::int64_t i = 0; i < kOperations; ++i) {
    const std::int64_t expected = i % 2 == 0 ? n * i + n * (n - 1) / 2 : i + i % n;
    const auto at = static_cast<std::size_t>(i);
    EXPECT_TRUE(data[at].eq(expected).all().item<bool>()) << "operation " << i;
    EXPECT_TRUE(pending[at]->is_done());
    pending[at]->wait();
  }
}

void check_records(const Group& group) {
  for (const std::int64_t length : {0, 1, 12, 13, 40}) {
    Counts record(static_cast<std::size_t>(length));
    std::iota(record.begin(), record.end(), 100 * group.index());
    Counts expected;
    for (std::int64_t i = 0; i < group.size(); ++i) {
      for (std::int64_t k = 0; k < length; ++k) expected.push_back(100 * i + k);
    }
    EXPECT_EQ(connect(group).check_records({"records", concat(length)}, record), expected);
  }
}

}  // namespace tessera::test
