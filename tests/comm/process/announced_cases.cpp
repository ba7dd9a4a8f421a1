#include "comm/process/announced_cases.h"

#include <numeric>

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using detail::connect;
using detail::Transport;
using Counts = std::vector<std::int64_t>;

/// Numbers that tell whose they are; their sums are exact.
at::Tensor own_numbers(std::int64_t member, std::int64_t count) {
  return at::arange(count, at::kLong).remainder(89).add(100 * member).to(at::kFloat);
}

Transport& announced(const Group& group, const char* op, std::int64_t count) {
  Transport& transport = connect(group);
  transport.check({op, concat(count)});
  return transport;
}

at::Tensor sum_of(const Group& group, std::int64_t count) {
  at::Tensor sum = own_numbers(0, count);
  for (std::int64_t i = 1; i < group.size(); ++i) sum = sum.add(own_numbers(i, count));
  return sum;
}

void expect_values(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(actual.equal(expected)) << what << " of " << expected.numel() << " is wrong";
}

void check_reductions_of(const Group& group, std::int64_t count) {
  const at::Tensor data = own_numbers(group.index(), count);
  announced(group, "all_reduce", count).all_reduce(data, ReduceOp::sum)->wait();
  expect_values(data, sum_of(group, count), "sum");
  const at::Tensor mean = own_numbers(group.index(), count);
  announced(group, "all_reduce", count).all_reduce(mean, ReduceOp::avg)->wait();
  expect_values(mean, sum_of(group, count).div(group.size()), "average");
  const at::Tensor in = own_numbers(group.index(), count * group.size());
  const at::Tensor out = at::empty({count}, at::kFloat);
  const Counts counts(static_cast<std::size_t>(group.size()), count);
  announced(group, "reduce_scatter", count).reduce_scatter(out, in, counts, ReduceOp::sum)->wait();
  expect_values(out, sum_of(group, in.numel()).narrow(0, group.index() * count, count),
                "reduce_scatter");
}

void check_roots_of(const Group& group, std::int64_t count) {
  const std::int64_t root = group.size() - 1;
  const at::Tensor data = own_numbers(group.index(), count);
  announced(group, "broadcast", count).broadcast(data, root)->wait();
  expect_values(data, own_numbers(root, count), "broadcast");
}

/// Member i has `counts[i]`.
void check_gathers_of(const Group& group, const Counts& counts) {
  const auto own = static_cast<std::size_t>(group.index());
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    parts.push_back(own_numbers(static_cast<std::int64_t>(i), counts[i]));
  }
  const at::Tensor all = at::cat(parts);
  const at::Tensor gathered = at::empty_like(all);
  announced(group, "all_gather", 0).all_gather(gathered, parts[own], counts)->wait();
  expect_values(gathered, all, "all_gather");
  const bool is_root = group.index() == 0;
  const at::Tensor at_root = is_root ? at::empty_like(all) : at::empty({0}, all.options());
  announced(group, "gather", 0).gather(at_root, parts[own], counts, 0)->wait();
  if (is_root) expect_values(at_root, all, "gather");
  const at::Tensor scattered = at::empty_like(parts[own]);
  announced(group, "scatter", 0).scatter(scattered, at_root, counts, 0)->wait();
  expect_values(scattered, parts[own], "scatter");
}

/// From i to j go `counts[i]`.
void check_all_to_all_of(const Group& group, const Counts& counts) {
  const auto own = static_cast<std::size_t>(group.index());
  const Counts send_counts(counts.size(), counts[own]);
  std::vector<at::Tensor> sent;
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto member = static_cast<std::int64_t>(i);
    sent.push_back(own_numbers(10 * group.index() + member, counts[own]));
    expected.push_back(own_numbers(10 * member + group.index(), counts[i]));
  }
  const at::Tensor out = at::empty({at::cat(expected).numel()}, at::kFloat);
  announced(group, "all_to_all", 0).all_to_all(out, at::cat(sent), counts, send_counts)->wait();
  expect_values(out, at::cat(expected), "all_to_all");
}

}  // namespace

void check_announced(const Group& group) {
  // Below and above what goes along, for pairs and for larger groups.
  for (const std::int64_t count : {0, 1, 7, 3'000, 31'000, 65'504, 65'505, 300'000}) {
    check_reductions_of(group, count);
    check_roots_of(group, count);
    const Counts even(static_cast<std::size_t>(group.size()), count);
    check_gathers_of(group, even);
    check_all_to_all_of(group, even);
  }
  for (std::int64_t larger = 0; larger < group.size(); ++larger) {
    Counts uneven(static_cast<std::size_t>(group.size()), 5);
    uneven[static_cast<std::size_t>(larger)] = 70'000;
    check_gathers_of(group, uneven);
    check_all_to_all_of(group, uneven);
  }
  announced(group, "barrier", 0).barrier();
  // What was announced is compared even if no operation follows.
  (void)announced(group, "nothing", 0);
  EXPECT_EQ(connect(group).check_records({"records", ""}, Counts{1}),
            Counts(static_cast<std::size_t>(group.size()), 1));
}

}  // namespace tessera::test
