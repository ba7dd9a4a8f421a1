#include "tensor/local_map_cases.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera::test {
namespace {

const Placements kRows = {Shard(0)};
const Placements kColumns = {Shard(1)};
const Placements kCopies = {Replicate()};

at::Tensor matmul_all_reduce(const DeviceMesh& mesh, const at::Tensor& a, const at::Tensor& b) {
  return all_reduce(torch::mm(a, b), ReduceOp::sum, mesh);
}

at::Tensor matmul_all_gather(const DeviceMesh& mesh, const at::Tensor& a, const at::Tensor& b) {
  return all_gather(torch::mm(a, b), 0, mesh);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) { return torch::mm(a, b); }

bool is_equal_everywhere(const DeviceMesh& mesh, const at::Tensor& x, const at::Tensor& y) {
  const auto own = torch::tensor({torch::equal(x, y)}, torch::kBool);
  return all_gather(own, 0, mesh).all().item<bool>();
}

/// The collectives of one call.
std::int64_t collectives_of(const std::function<void()>& call) {
  CommDebugMode traffic;
  {
    const auto scope = traffic.record();
    call();
  }
  return traffic.total_count();
}

}  // namespace

at::Tensor sample_values(const std::vector<std::int64_t>& sizes, std::int64_t seed) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  const auto index = torch::arange(count, torch::kDouble);
  return torch::sin(index * 1.7 + static_cast<double>(seed) * 0.61 + 0.3).reshape(sizes);
}

void expect_refused(const std::function<void()>& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << (parts.empty() ? "" : parts[0]);
  } catch (const InvalidArgument& error) {
    for (const auto& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

void check_matmul_with_all_reduce(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto w = sample_values({12, 8}, 1);
  const auto x = sample_values({8, 16}, 2);
  const auto w_parts = distribute_tensor(w, mesh, kColumns);
  const auto x_parts = distribute_tensor(x, mesh, kRows);
  const auto mapped =
      local_map(matmul_all_reduce, {.out_placements = {kCopies},
                                    .in_placements = {std::nullopt, kColumns, kRows},
                                    .mesh = mesh});
  at::Tensor y;
  EXPECT_EQ(collectives_of([&] { y = mapped(mesh, w_parts, x_parts); }), 1);
  EXPECT_EQ(placements_of(y), kCopies);
  EXPECT_TRUE(torch::allclose(to_local(y), torch::mm(w, x)));
}

void check_output_without_placements(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto x = distribute_tensor(sample_values({8, 8}, 1), mesh, kRows);
  const auto y = distribute_tensor(sample_values({8, 8}, 2), mesh, kRows);
  const auto mapped = local_map(is_equal_everywhere, {.out_placements = {std::nullopt}});
  bool is_equal = true;
  EXPECT_EQ(collectives_of([&] { is_equal = mapped(mesh, x, y); }), 1);
  EXPECT_FALSE(is_equal);
  EXPECT_TRUE(mapped(mesh, x, x));
  EXPECT_TRUE(local_map(is_equal_everywhere, {})(mesh, x, x));
}

void check_plain_inputs(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto x = sample_values({2, 4}, world.rank());
  const auto w = sample_values({4, 4}, 9);
  const auto mapped =
      local_map(matmul_all_gather,
                {.out_placements = {kRows}, .in_placements = {std::nullopt, kRows, kCopies}});
  CommDebugMode traffic;
  at::Tensor y;
  {
    const auto scope = traffic.record();
    y = mapped(mesh, x, w);
  }
  EXPECT_EQ(traffic.total_count(), 1);
  EXPECT_EQ(traffic.count("all_gather_into_tensor"), 1);
  EXPECT_FALSE(is_dtensor(y));
  EXPECT_TRUE(torch::allclose(y, torch::mm(all_gather(x, 0, mesh), w)));
}

void check_in_placements(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto x = sample_values({12, 8}, 1);
  const auto w = sample_values({8, 16}, 2);
  const auto x_parts = distribute_tensor(x, mesh, kRows);
  const auto w_parts = distribute_tensor(w, mesh, kCopies);
  const auto mapped = local_map(
      matmul, {.out_placements = {kRows}, .in_placements = {kRows, kCopies}, .mesh = mesh});
  at::Tensor y;
  EXPECT_EQ(collectives_of([&] { y = mapped(x_parts, w_parts); }), 0);
  EXPECT_EQ(placements_of(y), kRows);
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{12, 16}));
  EXPECT_TRUE(torch::allclose(full_tensor(y), torch::mm(x, w)));
  // A plain tensor where placements are asked for is passed on as it is.
  EXPECT_TRUE(torch::allclose(full_tensor(mapped(x_parts, w)), torch::mm(x, w)));

  expect_refused(
      [&] {
        (void)local_map(matmul, {.out_placements = {kRows},
                                 .in_placements = {kRows, std::nullopt}})(x_parts, w_parts);
      },
      {"expects placements but received None"});
  expect_refused(
      [&] {
        (void)local_map(matmul, {.out_placements = {kRows}, .in_placements = {kRows}})(x_parts,
                                                                                       w_parts);
      },
      {"in_placements length 1 does not match the number of input args 2"});
  const auto multiply = [](const at::Tensor& tensor, double factor) { return tensor * factor; };
  const auto scaled = local_map(
      multiply, {.out_placements = {kRows}, .in_placements = {kRows, std::nullopt}})(x_parts, 10.0);
  EXPECT_TRUE(torch::equal(full_tensor(scaled), x * 10.0));
  expect_refused(
      [&] {
        (void)local_map(multiply, {.out_placements = {kRows}, .in_placements = {kRows, kCopies}})(
            x_parts, 10.0);
      },
      {"Non-Tensor input 1 (a number) expects None placements but received [R]"});
}

void check_redistribution_of_inputs(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto w = sample_values({12, 8}, 1);
  const auto x = sample_values({8, 16}, 2);
  const auto w_parts = distribute_tensor(w, mesh, kRows);
  const auto x_parts = distribute_tensor(x, mesh, kColumns);
  LocalMapOptions options = {.out_placements = {kCopies},
                             .in_placements = {std::nullopt, kColumns, kRows},
                             .mesh = mesh,
                             .redistribute_inputs = true};
  at::Tensor y;
  const auto count =
      collectives_of([&] { y = local_map(matmul_all_reduce, options)(mesh, w_parts, x_parts); });
  // One rank alone has nothing to redistribute.
  EXPECT_EQ(count, world.size() == 1 ? 1 : 3);
  EXPECT_EQ(placements_of(y), kCopies);
  EXPECT_TRUE(torch::allclose(to_local(y), torch::mm(w, x)));

  options.redistribute_inputs = false;
  const auto mapped = local_map(matmul_all_reduce, options);
  const auto refused = collectives_of([&] {
    expect_refused(
        [&] { (void)mapped(mesh, w_parts, x_parts); },
        {"set redistribute_inputs=True", "input 1", "[12,8][S(0)] on", "[12,8][S(1)] on"});
  });
  EXPECT_EQ(refused, 0);
}

void check_gradient_placements(World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto x = sample_values({12, 2}, 1).requires_grad_();
  const auto w = sample_values({2, 4}, 2).requires_grad_();
  torch::mm(x, w).sum().backward();
  for (const auto& placements : {kRows, kCopies}) {
    const auto x_parts = distribute_tensor(x.detach(), mesh, placements).requires_grad_();
    const auto w_parts = distribute_tensor(w.detach(), mesh, kCopies).requires_grad_();
    const auto mapped = local_map(matmul, {.out_placements = {kRows},
                                           .in_placements = {kRows, kCopies},
                                           .in_grad_placements = {{Shard(0)}, {Partial()}},
                                           .mesh = mesh,
                                           .redistribute_inputs = true});
    const auto y = mapped(x_parts, w_parts);
    EXPECT_TRUE(torch::allclose(full_tensor(y), torch::mm(x, w)));
    to_local(y).sum().backward();
    EXPECT_TRUE(torch::allclose(full_tensor(x_parts.grad()), x.grad()));
    EXPECT_TRUE(torch::allclose(full_tensor(w_parts.grad()), w.grad()));
    // What comes out of the map is a sum still to be done; a leaf's gradient is placed like the leaf.
    EXPECT_EQ(placements_of(w_parts.grad()), kCopies);
  }
}

void check_masked_mean(World& world) {
  if (world.size() < 2 || world.rank() >= 2) return;
  const auto mesh = init_device_mesh("cpu", {2}, {"x"});
  const auto masked_mean = [&](const at::Tensor& x) {
    const auto mask = torch::zeros_like(x);
    if (world.rank() == 0) {
      mask.slice(0, 1, 3).fill_(1);
    } else {
      mask.slice(0, 4, 7).fill_(1);
    }
    return (x * mask).sum() / mask.sum();
  };
  const auto local = torch::arange(10, torch::kFloat) + static_cast<double>(world.rank());
  const auto x = from_local(local, mesh, {Shard(0)});
  const auto mean = local_map(masked_mean, {.out_placements = {{Partial(ReduceOp::sum)}},
                                            .in_placements = {{Shard(0)}},
                                            .mesh = mesh})(x);
  EXPECT_EQ(to_local(mean).item<float>(), world.rank() == 0 ? 1.5F : 6.0F);
  EXPECT_EQ(full_tensor(mean).item<float>(), 7.5F);
  EXPECT_EQ(mean.item<float>(), 7.5F);
}

}  // namespace tessera::test
