#include <gmock/gmock.h>

#include <torch/torch.h>

#include "tensor/local_map_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/traffic.h"
#include "tessera/layout/chunk.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera::test {
namespace {

const LocalMapOptions kInRows{.out_placements = {{Shard(0)}}};

/// The first `count` rows of a part, and again from the front where it has fewer.
at::Tensor some_rows(const at::Tensor& part, std::int64_t count) {
  return part.index_select(0,
                           torch::arange(count).remainder(std::max<std::int64_t>(part.size(0), 1)));
}

/// Expects that the call gives `rows` rows in all, after so many collectives.
void expect_rows(const std::function<at::Tensor()>& call, std::int64_t rows,
                 std::int64_t collectives) {
  CommDebugMode traffic;
  at::Tensor result;
  {
    const auto scope = traffic.record();
    result = call();
  }
  EXPECT_EQ(result.size(0), rows);
  EXPECT_EQ(traffic.total_count(), collectives);
  EXPECT_EQ(traffic.count("all_gather_into_tensor"), collectives);
  EXPECT_EQ(full_tensor(result).size(0), rows);
}

}  // namespace

void check_sizes_of_results(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const std::int64_t ranks = world.size();
  const std::int64_t asked = ranks > 1 ? 1 : 0;
  const auto x = distribute_tensor(sample_values({4 * ranks, 3}), mesh, {Shard(0)});
  const auto mapped = local_map(some_rows, kInRows);
  // A plain argument that is the same on all ranks; 4 is what the parts of x have.
  for (const std::int64_t count : {0, 1, 3, 4, 5}) {
    expect_rows([&] { return mapped(x, count); }, count * ranks, count == 4 ? 0 : asked);
  }
  // One that differs, so that the parts are those of 2 * ranks - 1 rows; then the rank, then values.
  const Extent own = chunk_extent(2 * ranks - 1, ranks, world.rank());
  expect_rows([&] { return mapped(x, own.size); }, 2 * ranks - 1, asked);
  const auto by_rank = [&](const at::Tensor& t) {
    return t.slice(0, 0, world.rank() == ranks - 1 ? 1 : 2);
  };
  expect_rows([&] { return local_map(by_rank, kInRows)(x); }, 2 * ranks - 1, asked);
  const auto last = full_tensor(x)[-1][0].item<double>();
  const auto by_value = [&](const at::Tensor& t) {
    return t.slice(0, 0, (t == last).any().item<bool>() ? 1 : 2);
  };
  expect_rows([&] { return local_map(by_value, kInRows)(x); }, 2 * ranks - 1, asked);
  // Several results are asked for together.
  CommDebugMode traffic;
  std::pair<at::Tensor, at::Tensor> both;
  {
    const auto scope = traffic.record();
    both = local_map([&](const at::Tensor& t) { return std::pair(by_rank(t), t.narrow(0, 0, 2)); },
                     kInRows)(x);
  }
  EXPECT_EQ(traffic.total_count(), asked);
  if (asked > 0) {
    EXPECT_EQ(traffic.records()[0].cause, "shape of local_map output 0, 1");
  }
  EXPECT_EQ(both.first.size(0), 2 * ranks - 1);
  EXPECT_EQ(both.second.size(0), 2 * ranks);
}

void expect_disagreement(const std::function<void()>& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "the ranks agreed: " << (parts.empty() ? "" : parts[0]);
  } catch (const CommError& error) {
    for (const auto& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

void check_disagreement_on_sizes(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const std::int64_t ranks = world.size();
  const auto x = distribute_tensor(sample_values({2 * ranks, 3}), mesh, {Shard(0)});
  const auto y = distribute_tensor(sample_values({3 * ranks, 3}), mesh, {Shard(0)});
  const auto either = [&](const at::Tensor& a, const at::Tensor& b) {
    return world.rank() == 0 ? a : b;
  };
  // Neither rank has asked: each took the result for the argument that it looks like.
  const auto z = local_map(either, kInRows)(x, y);
  // Its mean divides by the number of elements, which is the wrong one on some ranks.
  const auto taken = [&](std::int64_t rows) {
    return concat("having taken output 0 of local_map for float64[", rows, ",3][S(0)] on [", ranks,
                  "]");
  };
  expect_disagreement(
      [&] { (void)full_tensor(z.mean()).item<double>(); },
      {"the ranks do not agree: rank 0 calls ", taken(2 * ranks), "; rank 1 calls ",
       taken(3 * ranks),
       "; where the size of a result depends on values or on the rank, pass "
       "out_shapes to local_map, {std::nullopt} to have the ranks ask one another"});
}

}  // namespace tessera::test
