#include <gmock/gmock.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>

#include "comm/collectives_inputs.h"
#include "tessera/comm/pending_tensor.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

at::Tensor ones_of(const World& world) {
  return at::full({3}, static_cast<double>(world.rank() + 1), at::kDouble);
}

double total(const World& world) {
  return static_cast<double>(world.size() * (world.size() + 1)) / 2;
}

TEST(AsyncTest, UsingAResultWaitsForIt) {
  on_every_rank_count([](World& world) {
    const at::Tensor y =
        all_reduce(ones_of(world), ReduceOp::sum, world.group(), {.async_op = true});
    EXPECT_TRUE(is_pending(y));
    EXPECT_EQ(y.sizes(), (Sizes{3}));
    EXPECT_EQ(y.scalar_type(), at::kDouble);
    EXPECT_TRUE(y.device().is_cpu());
    EXPECT_TRUE(is_pending(y)) << "asking for the shape does not wait";
    expect_same_bits(y * 2, at::full({3}, 2 * total(world), at::kDouble));
    EXPECT_FALSE(is_pending(y));
    expect_same_bits(y, at::full({3}, total(world), at::kDouble));
  });
}

TEST(AsyncTest, WaitingGivesAPlainTensorAndMayBeRepeated) {
  on_every_rank_count([](World& world) {
    const at::Tensor y =
        all_reduce(ones_of(world), ReduceOp::sum, world.group(), {.async_op = true});
    const at::Tensor z = wait(y);
    EXPECT_TRUE(z.is_same(y));
    EXPECT_FALSE(is_pending(z));
    EXPECT_EQ(z.data_ptr<double>()[0], total(world));
    EXPECT_TRUE(wait(z).is_same(z));
    EXPECT_TRUE(z.has_storage());
    EXPECT_TRUE(z.key_set() == at::ones({3}).key_set());
    EXPECT_FALSE(wait(at::Tensor()).defined());
  });
}

TEST(AsyncTest, MemoryIsRefusedBeforeWaiting) {
  run_ranks(2, [](World& world) {
    const at::Tensor y =
        all_reduce(ones_of(world), ReduceOp::sum, world.group(), {.async_op = true});
    const auto message = thrown_by<c10::Error>([&] { (void)y.data_ptr(); });
    EXPECT_THAT(message, HasSubstr("This tensor is the result of a communication that was not "
                                   "waited for, so it has no memory yet. Use it in an operation "
                                   "first, or pass it to tessera::wait."));
    EXPECT_THROW((void)y.storage(), c10::Error);
    EXPECT_EQ(wait(y).data_ptr<double>()[0], total(world));
  });
}

TEST(AsyncTest, SeveralCollectivesAreUnderWayAtOnce) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const at::Tensor x = ones_of(world);
    const at::Tensor sum = all_reduce(x, ReduceOp::sum, group, {.async_op = true});
    const at::Tensor all = all_gather(x.view({1, 3}), 1, group, {.async_op = true});
    const at::Tensor last = broadcast(x, world.size() - 1, group, {.async_op = true});
    EXPECT_TRUE(is_pending(sum) && is_pending(all) && is_pending(last));
    // Used in another order.
    expect_same_bits(last.clone(), at::full({3}, double(world.size()), at::kDouble));
    EXPECT_TRUE(is_pending(sum) && is_pending(all));
    EXPECT_EQ(all.sum().item<double>(), 3 * total(world));
    EXPECT_EQ((sum + all.narrow(1, 0, 3)).sum().item<double>(), 3 * (total(world) + 1));
  });
}

TEST(AsyncTest, EveryCollectiveCanBeAsynchronous) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const std::int64_t n = world.size();
    const CollectiveOptions async{.async_op = true};
    const SplitOptions async_split{.async_op = true};
    for (const auto type : {at::kFloat, at::kBFloat16, at::kComplexFloat}) {
      const at::Tensor x = pattern({2 * n, 3}, world.rank(), type);
      Sizes ring;
      for (std::int64_t i = 0; i < n; ++i) ring.push_back((i + 1) % n);
      Tensors pieces;
      if (world.rank() == 0) pieces = Tensors(static_cast<std::size_t>(n), x);
      const auto check = [](const at::Tensor& pending, const at::Tensor& plain) {
        EXPECT_TRUE(is_pending(pending));
        expect_same_bits(pending.alias(), plain);
      };
      check(all_reduce(x, ReduceOp::product, group, async),
            all_reduce(x, ReduceOp::product, group));
      check(all_gather(x, 1, group, async_split), all_gather(x, 1, group));
      check(reduce_scatter(x, 1, ReduceOp::sum, group, async_split),
            reduce_scatter(x, 1, ReduceOp::sum, group));
      check(all_to_all(x, {}, {}, group, async), all_to_all(x, {}, {}, group));
      check(broadcast(x, n - 1, group, async), broadcast(x, n - 1, group));
      check(scatter(x, 1, n - 1, group, async_split), scatter(x, 1, n - 1, group));
      check(scatter(pieces, 0, group, async), scatter(pieces, 0, group));
      check(gather(x, 1, n - 1, group, async_split), gather(x, 1, n - 1, group));
      check(permute(x, ring, group, async), permute(x, ring, group));
      const auto list = all_reduce(Tensors{x, x + 1}, ReduceOp::sum, group, async);
      check(list[1], all_reduce(x + 1, ReduceOp::sum, group));
      check(list[0], all_reduce(x, ReduceOp::sum, group));
    }
  });
}

TEST(AsyncTest, TwoRanksExchangeMessages) {
  run_ranks(
      2,
      [](World& world) {
        const std::int64_t other = 1 - world.rank();
        const at::Tensor large = at::full({200'000}, static_cast<double>(world.rank()));
        const at::Tensor got = recv(large, other, world.group(), 3, {.async_op = true});
        EXPECT_TRUE(is_pending(got));
        send(large, other, world.group(), 3);
        EXPECT_EQ(got.sum().item<double>(), static_cast<double>(200'000 * other));
      },
      test_options());
}

TEST(AsyncTest, PendingTensorsAreInputsToo) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    at::Tensor y = ones_of(world);
    for (int i = 0; i < 3; ++i) y = all_reduce(y, ReduceOp::avg, group, {.async_op = true});
    EXPECT_NEAR(y.sum().item<double>(), 3 * total(world) / double(world.size()), 1e-12);
    const at::Tensor shared = all_gather(ones_of(world), 0, group, {.async_op = true});
    EXPECT_EQ(all_reduce(Tensors{shared, shared}, ReduceOp::max, group)[1].numel(),
              3 * world.size());
  });
}

TEST(AsyncTest, ListsOfTensorsWaitForTheirTensors) {
  run_ranks(3, [](World& world) {
    const auto make = [&] {
      return all_reduce(ones_of(world), ReduceOp::sum, world.group(), {.async_op = true});
    };
    EXPECT_EQ(at::cat({make(), make()}).sum().item<double>(), 6 * 6);
    EXPECT_EQ(at::stack({make(), at::ones({3}, at::kDouble)}).sum().item<double>(), 18 + 3);
    // An optional list: indices.
    const at::Tensor index =
        all_reduce(at::zeros({2}, at::kLong), ReduceOp::max, world.group(), {.async_op = true});
    EXPECT_EQ(at::index(at::arange(4), {index}).sum().item<std::int64_t>(), 0);
    at::Tensor target = at::zeros({3}, at::kDouble);
    EXPECT_EQ(target.index_put_({at::tensor({0, 1, 2})}, make()).sum().item<double>(), 18);
    EXPECT_EQ(target.copy_(make()).sum().item<double>(), 18);
    EXPECT_EQ(at::add_out(target, make(), make()).sum().item<double>(), 36);
  });
}

TEST(AsyncTest, ViewsAndChangesInPlaceActOnTheResult) {
  run_ranks(2, [](World& world) {
    const auto make = [&] {
      return all_reduce(ones_of(world), ReduceOp::sum, world.group(), {.async_op = true});
    };
    at::Tensor y = make();
    at::Tensor view = y.view({3, 1});
    view.add_(1);
    EXPECT_EQ(y.sum().item<double>(), 12);
    at::Tensor z = make();
    EXPECT_TRUE(z.add_(1).is_same(z));
    EXPECT_EQ(z.sum().item<double>(), 12);
    at::Tensor out = make();
    at::add_out(out, at::ones({5}, at::kDouble), at::ones({5}, at::kDouble));
    EXPECT_EQ(out.sizes(), (Sizes{5}));
    // A copy that shares the memory, made before it was there.
    const at::Tensor first = make();
    const at::Tensor copy = first.variable_data();
    EXPECT_TRUE(is_pending(copy));
    EXPECT_EQ(copy.sum().item<double>(), 9);
    EXPECT_EQ(first.sum().item<double>(), 9);
    EXPECT_EQ(first.data_ptr(), copy.data_ptr());
  });
}

TEST(AsyncTest, UnusedResultsAreWaitedForWhenDropped) {
  on_every_rank_count([](World& world) {
    const at::Tensor large = at::ones({300'000});
    for (int i = 0; i < 5; ++i) {
      (void)all_reduce(large, ReduceOp::sum, world.group(), {.async_op = true});
    }
    EXPECT_EQ(all_reduce(at::ones({1}), ReduceOp::sum, world.group()).item<double>(), world.size());
  });
}

TEST(AsyncTest, HistoryComesWithTheResult) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const auto gradient_of = [&](ReduceOp op, bool async_op, bool waits) {
      const at::Tensor x =
          (ones_of(world) * at::tensor({1.0, -1.0, 2.0}, at::kDouble)).requires_grad_();
      at::Tensor y = all_reduce(x, op, group, {.async_op = async_op});
      EXPECT_TRUE(y.requires_grad());
      EXPECT_EQ(is_pending(y), async_op);
      if (waits) y = wait(y);
      EXPECT_NE(y.grad_fn(), nullptr);
      const at::Tensor first = torch::autograd::grad({(y * y * y).sum()}, {x}, {}, true, true)[0];
      return at::stack({first, torch::autograd::grad({(first * first).sum()}, {x})[0]}).detach();
    };
    for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::product}) {
      const at::Tensor expected = gradient_of(op, false, false);
      expect_same_values(gradient_of(op, true, false), expected, 1e-12);
      expect_same_values(gradient_of(op, true, true), expected, 1e-12);
    }
    const at::Tensor x = ones_of(world).requires_grad_();
    torch::autograd::backward({all_gather(x, 0, group, {.async_op = true}).sum()});
    expect_same_bits(x.grad(), at::full({3}, double(world.size()), at::kDouble));
    const at::Tensor unused = all_gather(x, 0, group, {.async_op = true});
    torch::autograd::backward({all_gather(x, 0, group, {.async_op = true})},
                              {at::ones({3 * world.size()}, at::kDouble)});
  });
}

TEST(AsyncTest, OtherModesOfTorchWork) {
  run_ranks(2, [](World& world) {
    {
      const c10::InferenceMode guard;
      const at::Tensor y =
          all_reduce(ones_of(world), ReduceOp::sum, world.group(), {.async_op = true});
      EXPECT_EQ((y + 1).sum().item<double>(), 12);
    }
    {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      const at::Tensor y =
          all_reduce(at::ones({2, 2}), ReduceOp::sum, world.group(), {.async_op = true});
      EXPECT_EQ(at::mm(y, y).scalar_type(), at::kBFloat16);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    }
    const at::NoGradGuard guard;
    const at::Tensor x = ones_of(world).requires_grad_();
    EXPECT_EQ(all_reduce(x, ReduceOp::sum, world.group(), {.async_op = true}).sum().item<double>(),
              9);
  });
}

/// A tensor of another kind, as the tensor layer has them.
class OtherMeta : public detail::WrappedMeta {
 public:
  [[nodiscard]] Kind kind() const override { return Kind::distributed; }
};

thread_local int handled = 0;

/// Answers every op with its first argument's number of elements.
void handle(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  ++handled;
  const auto count = op.schema().arguments().size();
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) {
    const auto& value = (*stack)[i];
    EXPECT_FALSE(value.isTensor() && is_pending(value.toTensor()));
  }
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, at::full({}, 42));
}

TEST(WrappedTensorTest, OtherKindsGoToTheirHandler) {
  detail::set_wrapped_handler(&handle);
  run_ranks(2, [](World& world) {
    const at::Tensor other =
        detail::make_wrapped(at::ones({3}), c10::make_intrusive<OtherMeta>(), "no memory here");
    const at::Tensor y =
        all_reduce(at::ones({3}), ReduceOp::sum, world.group(), {.async_op = true});
    EXPECT_EQ(at::add(y, other).item<int>(), 42);
    EXPECT_EQ(at::cat({other, at::ones({3})}).item<int>(), 42);
    EXPECT_EQ(handled, 2);
    EXPECT_THAT(thrown_by<c10::Error>([&] { (void)other.data_ptr(); }),
                HasSubstr("no memory here"));
    EXPECT_THAT(
        thrown_by<InvalidArgument>([&] { (void)all_reduce(other, ReduceOp::sum, world.group()); }),
        HasSubstr("all_reduce: a distributed tensor given as x; pass its local part, or "
                  "use redistribute"));
  });
  detail::set_wrapped_handler(nullptr);
  const at::Tensor other =
      detail::make_wrapped(at::ones({3}), c10::make_intrusive<OtherMeta>(), "no memory here");
  EXPECT_THAT(thrown_by<InternalError>([&] { (void)(other + other); }),
              HasSubstr("nothing handles the wrapped arguments of aten::add.Tensor"));
}

}  // namespace
}  // namespace tessera::test
