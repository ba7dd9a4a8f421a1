#include "comm/collectives_gradients.h"

namespace tessera::test {
namespace {

struct Reduction {
  ReduceOp op;
  at::Tensor (*plain)(const Tensors&);
};
const std::vector<Reduction> kReductions = {{ReduceOp::sum, sum_of},
                                            {ReduceOp::avg, mean_of},
                                            {ReduceOp::max, max_of},
                                            {ReduceOp::min, min_of},
                                            {ReduceOp::product, product_of}};

TEST(AllReduceGradientTest, EveryOpHasThePlainGradients) {
  for (const auto& reduction : kReductions) {
    SCOPED_TRACE(to_string(reduction.op));
    expect_plain_gradients(
        same_shapes(),
        [&](const at::Tensor& x, const Group& group) { return all_reduce(x, reduction.op, group); },
        [&](std::int64_t) { return everywhere(reduction.plain); });
  }
}

TEST(AllReduceGradientTest, ComplexNumbersHaveThePlainGradients) {
  for (const auto& reduction : {kReductions[0], kReductions[1], kReductions[4]}) {
    SCOPED_TRACE(to_string(reduction.op));
    expect_plain_gradients(
        same_shapes(at::kComplexDouble),
        [&](const at::Tensor& x, const Group& group) { return all_reduce(x, reduction.op, group); },
        [&](std::int64_t) { return everywhere(reduction.plain); });
  }
}

TEST(AllReduceGradientTest, ProductsWithZerosAreRight) {
  // Elements with no, one, two and all zeros among the ranks.
  const auto input = [](std::int64_t rank) {
    at::Tensor x = numbers({5}, rank);
    if (rank == 0) x[1] = 0;
    if (rank <= 1) x[2] = 0;
    x[3] = 0;
    return x;
  };
  expect_plain_gradients(
      input,
      [](const at::Tensor& x, const Group& group) {
        return all_reduce(x, ReduceOp::product, group);
      },
      [](std::int64_t) { return everywhere(product_of); });
}

TEST(AllReduceGradientTest, EqualExtremesShareEvenly) {
  // The same everywhere in [0], on two ranks in [1].
  const auto input = [](std::int64_t rank) {
    at::Tensor x = numbers({3}, rank);
    x[0] = 4;
    if (rank <= 1) x[1] = 5;
    return x;
  };
  expect_plain_gradients(
      input,
      [](const at::Tensor& x, const Group& group) { return all_reduce(x, ReduceOp::max, group); },
      [](std::int64_t) { return everywhere(max_of); });
}

Plain pieces_of(const std::function<at::Tensor(const Tensors&)>& whole, std::int64_t dim,
                const Sizes& sizes) {
  return [=](const Tensors& inputs) { return whole(inputs).split_with_sizes(sizes, dim); };
}

/// Sizes that add up to 6.
Sizes pieces_for(std::int64_t ranks) {
  const std::vector<Sizes> sizes = {{6}, {5, 1}, {3, 0, 3}, {1, 0, 2, 3}};
  return sizes[static_cast<std::size_t>(ranks - 1)];
}

TEST(ReduceScatterGradientTest, EveryOpHasThePlainGradients) {
  for (const std::int64_t dim : {0, 1}) {
    for (const auto& reduction : kReductions) {
      SCOPED_TRACE(to_string(reduction.op));
      expect_plain_gradients(
          [&](std::int64_t rank) {
            return numbers(dim == 0 ? Sizes{6, 2} : Sizes{2, 6}, rank);
          },
          [&](const at::Tensor& x, const Group& group) {
            return reduce_scatter(x, dim, reduction.op, group, {.sizes = pieces_for(group.size())});
          },
          [&](std::int64_t ranks) { return pieces_of(reduction.plain, dim, pieces_for(ranks)); });
    }
  }
}

/// Inputs of different sizes along `dim`.
Input uneven(std::int64_t dim) {
  return [dim](std::int64_t rank) {
    const std::int64_t size = Sizes{2, 0, 3, 1}[static_cast<std::size_t>(rank)];
    return numbers(dim == 0 ? Sizes{size, 2} : Sizes{2, size}, rank);
  };
}

TEST(AllGatherGradientTest, UnevenInputsHaveThePlainGradients) {
  for (const std::int64_t dim : {0, 1}) {
    expect_plain_gradients(
        uneven(dim),
        [&](const at::Tensor& x, const Group& group) { return all_gather(x, dim, group); },
        [&](std::int64_t) {
          return everywhere([dim](const Tensors& inputs) { return at::cat(inputs, dim); });
        });
  }
}

TEST(AllGatherGradientTest, TensorsWithoutDimsHaveThem) {
  expect_plain_gradients(
      [](std::int64_t rank) { return numbers({}, rank); },
      [](const at::Tensor& x, const Group& group) { return all_gather(x, 0, group); },
      [](std::int64_t) {
        return everywhere([](const Tensors& inputs) { return at::stack(inputs); });
      });
}

TEST(AllToAllGradientTest, UnevenSplitsHaveThePlainGradients) {
  const auto rows = [](std::int64_t from, std::int64_t to) { return (from * 2 + to * 3) % 4; };
  const auto splits = [&](std::int64_t from, std::int64_t ranks) {
    Sizes send;
    for (std::int64_t to = 0; to < ranks; ++to) send.push_back(rows(from, to));
    return send;
  };
  for (const std::int64_t ranks : kRankCounts) {
    EXPECT_NO_THROW(run_ranks(
        ranks,
        [&](World& world) {
          Tensors values;
          for (std::int64_t rank = 0; rank < ranks; ++rank) {
            const Sizes send = splits(rank, ranks);
            values.push_back(
                numbers({at::IntArrayRef(send).empty() ? 0 : c10::sum_integers(send), 2}, rank));
          }
          const Plain plain = [&](const Tensors& inputs) {
            std::vector<Tensors> pieces(inputs.size());
            for (std::int64_t from = 0; from < ranks; ++from) {
              const auto sent =
                  inputs[static_cast<std::size_t>(from)].split_with_sizes(splits(from, ranks));
              for (std::size_t to = 0; to < sent.size(); ++to) pieces[to].push_back(sent[to]);
            }
            Tensors outputs;
            for (const auto& received : pieces) outputs.push_back(at::cat(received));
            return outputs;
          };
          const auto expected = plain_gradients(values, plain, world.rank());
          const auto actual = distributed_gradients(
              values[static_cast<std::size_t>(world.rank())],
              [&](const at::Tensor& x, const Group& group) {
                return all_to_all(x, {}, splits(world.rank(), ranks), group);
              },
              world);
          expect_same_values(actual.first, expected.first, 1e-10);
          expect_same_values(actual.second, expected.second, 1e-10);
        },
        test_options()));
  }
}

TEST(BroadcastGradientTest, OnlyTheRootHasOne) {
  expect_plain_gradients(
      same_shapes(), [](const at::Tensor& x, const Group& group) { return broadcast(x, 0, group); },
      [](std::int64_t) { return everywhere([](const Tensors& inputs) { return inputs[0]; }); });
  expect_plain_gradients(
      same_shapes(),
      [](const at::Tensor& x, const Group& group) { return broadcast(x, group.size() - 1, group); },
      [](std::int64_t) { return everywhere([](const Tensors& inputs) { return inputs.back(); }); });
}

TEST(ScatterGradientTest, OnlyTheRootHasOne) {
  for (const std::int64_t dim : {0, 1}) {
    expect_plain_gradients(
        [&](std::int64_t rank) {
          return numbers(dim == 0 ? Sizes{6, 2} : Sizes{2, 6}, rank);
        },
        [&](const at::Tensor& x, const Group& group) {
          return scatter(x, dim, group.size() / 2, group, {.sizes = pieces_for(group.size())});
        },
        [&](std::int64_t ranks) {
          const auto root = static_cast<std::size_t>(ranks / 2);
          return pieces_of([root](const Tensors& inputs) { return inputs[root]; }, dim,
                           pieces_for(ranks));
        });
  }
}

TEST(ScatterGradientTest, ListsHaveOneForEachPiece) {
  on_every_rank_count([](World& world) {
    const std::int64_t root = world.size() - 1;
    Tensors pieces;
    for (std::int64_t i = 0; i < world.size(); ++i) {
      pieces.push_back(numbers({i, 2}, i).requires_grad_());
    }
    const Tensors given = world.rank() == root ? pieces : Tensors{};
    const at::Tensor y = scatter(given, root, world.group());
    const at::Tensor loss = loss_of(y, world.rank());
    ASSERT_TRUE(y.requires_grad());
    torch::autograd::backward({loss});
    if (world.rank() != root) return;
    for (std::int64_t i = 0; i < world.size(); ++i) {
      const at::Tensor& piece = pieces[static_cast<std::size_t>(i)];
      expect_same_values(piece.grad(), gradient(loss_of(piece, i), piece, false), 1e-12);
    }
  });
}

TEST(GatherGradientTest, ComesFromTheRoot) {
  for (const std::int64_t dim : {0, 1}) {
    expect_plain_gradients(
        uneven(dim),
        [&](const at::Tensor& x, const Group& group) {
          return gather(x, dim, group.size() - 1, group);
        },
        [&](std::int64_t) {
          return [dim](const Tensors& inputs) {
            const at::Tensor whole = at::cat(inputs, dim);
            Tensors outputs(inputs.size(), whole.narrow(dim, 0, 0));
            outputs.back() = whole;
            return outputs;
          };
        });
  }
}

TEST(PermuteGradientTest, GoesBackAlongThePairs) {
  expect_plain_gradients(
      same_shapes(),
      [](const at::Tensor& x, const Group& group) {
        Sizes ring;
        for (std::int64_t i = 0; i < group.size(); ++i) ring.push_back((i + 1) % group.size());
        return permute(x, ring, group);
      },
      [](std::int64_t ranks) {
        return [ranks](const Tensors& inputs) {
          Tensors outputs;
          for (std::int64_t i = 0; i < ranks; ++i) {
            outputs.push_back(inputs[static_cast<std::size_t>((i + ranks - 1) % ranks)]);
          }
          return outputs;
        };
      });
  expect_plain_gradients(
      same_shapes(),
      [](const at::Tensor& x, const Group& group) {
        return permute(x, {{0, group.size() - 1}}, group);
      },
      [](std::int64_t) {
        return [](const Tensors& inputs) {
          Tensors outputs(inputs.size(), at::zeros_like(inputs[0]));
          outputs.back() = inputs[0];
          return outputs;
        };
      });
}

TEST(ListGradientTest, ListsHaveTheGradientsOfTheirTensors) {
  on_every_rank_count([](World& world) {
    const auto group = world.group();
    const auto leaves = [&] {
      return Tensors{numbers({3, 2}, world.rank()).requires_grad_(),
                     numbers({4}, world.rank() + 9).to(at::kFloat).requires_grad_(),
                     numbers({2, 3}, world.rank() + 17).requires_grad_()};
    };
    const auto total = [&](const Tensors& outputs) {
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (const auto& y : outputs) loss = loss + loss_of(y, world.rank());
      return loss;
    };
    const auto compare = [&](const auto& list, const auto& single) {
      const Tensors together = leaves();
      const Tensors apart = leaves();
      torch::autograd::backward({total(list(together))});
      Tensors outputs;
      for (const auto& x : apart) outputs.push_back(single(x));
      torch::autograd::backward({total(outputs)});
      for (std::size_t i = 0; i < apart.size(); ++i) {
        expect_same_values(together[i].grad(), apart[i].grad(), 1e-6);
      }
    };
    for (const auto& reduction : kReductions) {
      const ReduceOp op = reduction.op;
      compare([&](const Tensors& xs) { return all_reduce(xs, op, group); },
              [&](const at::Tensor& x) { return all_reduce(x, op, group); });
      compare([&](const Tensors& xs) { return reduce_scatter(xs, 0, op, group); },
              [&](const at::Tensor& x) { return reduce_scatter(x, 0, op, group); });
    }
    compare([&](const Tensors& xs) { return all_gather(xs, -1, group); },
            [&](const at::Tensor& x) { return all_gather(x, -1, group); });
  });
}

/// The sum of all ranks' losses, without history.
double total_loss(const at::Tensor& x, const Distributed& collective, const World& world) {
  const at::Tensor loss = loss_of(collective(x, world.group()), world.rank()).detach();
  return all_reduce(loss, ReduceOp::sum, world.group()).item<double>();
}

TEST(NumericGradientTest, SmallStepsChangeTheLossByTheGradient) {
  const std::vector<Distributed> collectives = {
      [](const at::Tensor& x, const Group& group) { return all_reduce(x, ReduceOp::max, group); },
      [](const at::Tensor& x, const Group& group) {
        return all_reduce(x, ReduceOp::product, group);
      },
      [](const at::Tensor& x, const Group& group) { return all_gather(x, 1, group); },
      [](const at::Tensor& x, const Group& group) {
        return reduce_scatter(x, 0, ReduceOp::avg, group);
      },
      [](const at::Tensor& x, const Group& group) { return gather(x, 0, 1, group); },
      [](const at::Tensor& x, const Group& group) { return scatter(x, 0, 1, group); },
      [](const at::Tensor& x, const Group& group) { return broadcast(x, 1, group); }};
  run_ranks(
      3,
      [&](World& world) {
        for (const auto& collective : collectives) {
          const at::Tensor x = numbers({3, 2}, world.rank());
          const at::Tensor found = distributed_gradients(x, collective, world).first.view(-1);
          constexpr double kStep = 1e-5;
          for (std::int64_t rank = 0; rank < world.size(); ++rank) {
            for (std::int64_t i = 0; i < x.numel(); ++i) {
              const auto moved = [&](double step) {
                at::Tensor y = x.clone();
                if (world.rank() == rank) y.view(-1)[i] += step;
                return total_loss(y, collective, world);
              };
              const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
              if (world.rank() != rank) continue;
              EXPECT_NEAR(found[i].item<double>(), slope, 1e-6);
            }
          }
        }
      },
      test_options());
}

TEST(GradientTest, BitwiseResultsHaveNoHistory) {
  run_ranks(2, [](World& world) {
    const at::Tensor x = at::ones({2}, at::kLong);
    EXPECT_FALSE(all_reduce(x, ReduceOp::bxor, world.group()).requires_grad());
    const at::Tensor y = at::ones({2}).requires_grad_();
    {
      const at::NoGradGuard guard;
      EXPECT_FALSE(all_reduce(y, ReduceOp::sum, world.group()).requires_grad());
    }
    EXPECT_TRUE(all_reduce(y, ReduceOp::sum, world.group()).requires_grad());
    EXPECT_FALSE(all_reduce(y.detach(), ReduceOp::sum, world.group()).requires_grad());
  });
}

TEST(GradientTest, ResultsCanBeChangedInPlace) {
  run_ranks(2, [](World& world) {
    const at::Tensor x = at::ones({2, 3}).requires_grad_();
    const auto check = [&](at::Tensor y) {
      y.mul_(3);
      torch::autograd::backward({y.sum()});
    };
    check(all_reduce(x, ReduceOp::sum, world.group()));
    expect_same_bits(x.grad(), at::full({2, 3}, 6.0));
    check(all_gather(x, 1, world.group()));
    expect_same_bits(x.grad(), at::full({2, 3}, 12.0));
    auto both = all_reduce(Tensors{x, x}, ReduceOp::sum, world.group());
    both[0].mul_(2);
    both[1].fill_(0);
    torch::autograd::backward({(both[0] + both[1]).sum()});
    expect_same_bits(x.grad(), at::full({2, 3}, 16.0));
    // Linear ones keep nothing that a second backward pass could miss.
    const at::Tensor sum = all_reduce(x, ReduceOp::sum, world.group());
    torch::autograd::backward({sum}, {at::ones({2, 3})});
    torch::autograd::backward({sum}, {at::ones({2, 3})});
  });
}

}  // namespace
}  // namespace tessera::test
