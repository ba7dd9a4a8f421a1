#include <algorithm>
#include <mutex>

#include <gmock/gmock.h>

#include "comm/collectives_inputs.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"

// Every way in which one rank's call can differ from the others', for every collective: all ranks get
// an error that shows both calls. A message's wrong peer is a third rank's matter: thread_deadlock_test.cpp.

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint64_t kSeeds = 20;

enum class Kind { op, shape, ndim, dtype, reduce_op, root, splits, group, order, peer };
constexpr const char* kKindNames[] = {"op",   "shape",  "ndim",  "dtype", "reduce op",
                                      "root", "splits", "group", "order", "peer"};

/// What a call is made of.
struct Arguments {
  /// Behind dim 0.
  Sizes other_dims;
  at::ScalarType type = at::kFloat;
  ReduceOp op = ReduceOp::sum;
  std::int64_t root = 0;
  /// Along dim 0, one for each member.
  Sizes sizes;
  /// Where each member sends to.
  Sizes destinations;

  [[nodiscard]] std::int64_t size_of(const Group& group) const {
    return sizes[static_cast<std::size_t>(group.index())];
  }
  [[nodiscard]] at::Tensor tensor(std::int64_t rows) const {
    Sizes shape = {rows};
    shape.insert(shape.end(), other_dims.begin(), other_dims.end());
    return at::zeros(shape, type);
  }
  [[nodiscard]] at::Tensor own(const Group& group) const { return tensor(size_of(group)); }
  [[nodiscard]] at::Tensor whole() const { return tensor(c10::sum_integers(sizes)); }
};

struct Collective {
  /// The c10d name.
  std::string name;
  /// In which it can differ, beyond op, group and order.
  std::vector<Kind> kinds;
  std::function<void(const Arguments&, const Group&)> call;
};

void scatter_pieces(const Arguments& given, const Group& group) {
  Tensors pieces;
  for (const auto size : given.sizes) pieces.push_back(given.tensor(size));
  (void)scatter(group.index() == given.root ? pieces : Tensors{}, given.root, group);
}

std::vector<Collective> collectives() {
  using enum Kind;
  return {
      {"all_reduce",
       {shape, ndim, dtype, reduce_op},
       [](const auto& given, const auto& group) {
         (void)all_reduce(given.whole(), given.op, group);
       }},
      {"all_reduce_coalesced",
       {shape, ndim, dtype, reduce_op},
       [](const auto& given, const auto& group) {
         (void)all_reduce(Tensors{at::ones({2}), given.whole()}, given.op, group);
       }},
      {"all_gather_into_tensor",
       {shape, ndim, dtype},
       [](const auto& given, const auto& group) { (void)all_gather(given.own(group), 0, group); }},
      {"all_gather_into_tensor",
       {shape, ndim, dtype, splits},
       [](const auto& given, const auto& group) {
         (void)all_gather(given.own(group), 0, group, {.sizes = given.sizes});
       }},
      {"all_gather_into_tensor_coalesced",
       {shape, ndim, dtype},
       [](const auto& given, const auto& group) {
         (void)all_gather(Tensors{at::ones({2}), given.own(group)}, 0, group);
       }},
      {"reduce_scatter_tensor",
       {shape, ndim, dtype, reduce_op, splits},
       [](const auto& given, const auto& group) {
         (void)reduce_scatter(given.whole(), 0, given.op, group, {.sizes = given.sizes});
       }},
      {"reduce_scatter_tensor_coalesced",
       {shape, ndim, dtype, reduce_op},
       [](const auto& given, const auto& group) {
         (void)reduce_scatter(Tensors{at::ones({2}), given.whole()}, 0, given.op, group);
       }},
      {"all_to_all_single",
       {shape, ndim, dtype, splits},
       [](const auto& given, const auto& group) {
         const Sizes receive(given.sizes.size(), given.size_of(group));
         (void)all_to_all(given.whole(), receive, given.sizes, group);
       }},
      {"broadcast",
       {shape, ndim, dtype, root},
       [](const auto& given, const auto& group) {
         (void)broadcast(given.whole(), given.root, group);
       }},
      {"scatter",
       {shape, ndim, dtype, root, splits},
       [](const auto& given, const auto& group) {
         (void)scatter(given.whole(), 0, given.root, group, {.sizes = given.sizes});
       }},
      {"scatter", {root}, scatter_pieces},
      {"gather",
       {shape, ndim, dtype, root},
       [](const auto& given, const auto& group) {
         (void)gather(given.own(group), 0, given.root, group);
       }},
      {"gather",
       {shape, ndim, dtype, root, splits},
       [](const auto& given, const auto& group) {
         (void)gather(given.own(group), 0, given.root, group, {.sizes = given.sizes});
       }},
      {"all_to_all_single",
       {shape, ndim, dtype, peer},
       [](const auto& given, const auto& group) {
         (void)permute(given.whole(), given.destinations, group);
       }},
      {"barrier", {}, [](const auto& /*given*/, const auto& group) { barrier(group); }},
      {"all_gather_object",
       {},
       [](const auto& given, const auto& group) {
         (void)all_gather_object(std::string(given.sizes.size(), 'x'), group);
       }},
  };
}

/// A call that is right when all members make it.
Arguments random_arguments(Random& random, std::int64_t ranks) {
  const std::vector<at::ScalarType> types = {at::kFloat, at::kDouble, at::kLong, at::kBFloat16,
                                             at::kBool};
  const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                                     ReduceOp::product};
  Arguments given;
  for (auto dims = random.between(1, 2); dims > 0; --dims) {
    given.other_dims.push_back(random.between(random.one_in(5) ? 0 : 1, 3));
  }
  given.type = random.pick(types);
  given.op = random.pick(ops);
  given.root = random.between(0, ranks - 1);
  for (std::int64_t i = 0; i < ranks; ++i) {
    given.sizes.push_back(random.between(0, 3));
    given.destinations.push_back((i + 1) % ranks);
  }
  return given;
}

/// The same, but for one thing that the member gets wrong.
Arguments changed(Arguments given, Kind kind, std::int64_t member, Random& random) {
  const auto ranks = static_cast<std::int64_t>(given.sizes.size());
  switch (kind) {
    case Kind::shape:
      ++given.other_dims[static_cast<std::size_t>(
          random.between(0, std::ssize(given.other_dims) - 1))];
      break;
    case Kind::ndim:
      given.other_dims.push_back(1);
      break;
    case Kind::dtype:
      given.type = given.type == at::kFloat ? at::kInt : at::kFloat;
      break;
    case Kind::reduce_op:
      given.op = given.op == ReduceOp::sum ? ReduceOp::max : ReduceOp::sum;
      break;
    case Kind::root:
      given.root = (given.root + random.between(1, ranks - 1)) % ranks;
      break;
    case Kind::splits:
      // Another member's, as its own would be wrong without the others.
      ++given.sizes[static_cast<std::size_t>((member + random.between(1, ranks - 1)) % ranks)];
      break;
    case Kind::peer:
      for (auto& destination : given.destinations) destination = (destination + 1) % ranks;
      break;
    default:
      break;
  }
  return given;
}

/// All ranks of the world, in another order.
Group turned(const World& world) {
  Sizes ranks;
  for (std::int64_t rank = world.size() - 1; rank >= 0; --rank) ranks.push_back(rank);
  return world.group(ranks, "turned");
}

using Call = std::function<void(const Group&)>;

/// One member of a group is at odds with the others.
struct Case {
  /// The members' ranks.
  Sizes ranks;
  /// Its place in the group.
  std::int64_t odd = 0;
  Call usual_call;
  Call odd_call;
  std::string usual_name;
  std::string odd_name;

  /// How the error shows a member's call.
  [[nodiscard]] const std::string& name_of(std::int64_t member) const {
    return member == odd ? odd_name : usual_name;
  }
  [[nodiscard]] std::int64_t rank_of(std::int64_t member) const {
    return ranks[static_cast<std::size_t>(member)];
  }
};

Case make_case(const Collective& collective, Kind kind, const Sizes& ranks, std::uint64_t seed) {
  Random random(seed);
  const auto count = static_cast<std::int64_t>(ranks.size());
  const std::int64_t odd = random.between(0, count - 1);
  const Arguments usual = random_arguments(random, count);
  const Arguments wrong = changed(usual, kind, odd, random);
  const Call usual_call = [=](const Group& group) { collective.call(usual, group); };
  const Call odd_call = [=](const Group& group) { collective.call(wrong, group); };
  if (kind != Kind::op && kind != Kind::order) {
    return {ranks, odd, usual_call, odd_call, collective.name, collective.name};
  }
  const auto all = collectives();
  Collective other = random.pick(all);
  while (other.name == collective.name) other = random.pick(all);
  const Call other_call = [=](const Group& group) { other.call(usual, group); };
  if (kind == Kind::op) return {ranks, odd, usual_call, other_call, collective.name, other.name};
  const auto both = [](const Call& first, const Call& second) {
    return [=](const Group& group) { first(group), second(group); };
  };
  return {ranks,           odd,       both(usual_call, other_call), both(other_call, usual_call),
          collective.name, other.name};
}

/// Different groups of four ranks, as a group can fail only once.
std::vector<Sizes> random_groups(std::uint64_t count) {
  Random random(0);
  std::vector<Sizes> groups;
  while (groups.size() < count) {
    Sizes ranks = {0, 1, 2, 3};
    random.shuffle(ranks);
    ranks.resize(static_cast<std::size_t>(random.between(2, 4)));
    if (std::find(groups.begin(), groups.end(), ranks) == groups.end()) groups.push_back(ranks);
  }
  return groups;
}

/// Makes the calling rank's call, and returns what it throws.
std::string error_of(const Case& given, const Group& group, bool is_odd) {
  const auto error =
      thrown_by<CommError>([&] { (is_odd ? given.odd_call : given.usual_call)(group); });
  EXPECT_THAT(thrown_by<CommError>([&] { barrier(group); }),
              HasSubstr("the group cannot be used any more since it failed: "));
  return error;
}

class DisagreementTest : public ::testing::TestWithParam<Kind> {
 protected:
  static void expect_error(const Case& given, const World& world, bool compares_splits) {
    const Group group = world.group(given.ranks);
    const auto error = error_of(given, group, group.index() == given.odd);
    EXPECT_THAT(
        error,
        AllOf(StartsWith(given.name_of(group.index())),
              HasSubstr(concat(" on group ", group.name(), ", rank ", world.rank(), ", after "))));
    const std::string disagree = "the ranks do not agree: rank ";
    if (compares_splits) {
      EXPECT_THAT(error,
                  AllOf(HasSubstr(disagree), HasSubstr(concat("rank ", given.rank_of(given.odd))),
                        HasSubstr(" row(s) to rank "), HasSubstr(", which expects ")));
      return;
    }
    // Members are compared with the first one.
    const std::int64_t other = given.odd == 0 ? 1 : given.odd;
    EXPECT_THAT(
        error,
        AllOf(HasSubstr(concat(disagree, given.rank_of(0), " calls ", given.name_of(0))),
              HasSubstr(concat("rank ", given.rank_of(other), " calls ", given.name_of(other)))));
  }
};

TEST_P(DisagreementTest, IsFoundByAllMembersOfEveryCollective) {
  const Kind kind = GetParam();
  const bool concerns_all = kind == Kind::op || kind == Kind::order;
  const auto groups = random_groups(kSeeds);
  for (const auto& collective : collectives()) {
    const auto& kinds = collective.kinds;
    if (!concerns_all && std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    run_ranks(
        4,
        [&](World& world) {
          for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
            const auto& ranks = groups[seed];
            if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) continue;
            SCOPED_TRACE(concat(collective.name, ", seed ", seed));
            expect_error(make_case(collective, kind, ranks, seed), world,
                         kind == Kind::splits && collective.name == "all_to_all_single");
          }
        },
        test_options());
  }
}

TEST(GroupDisagreementTest, IsADeadlockThatNamesBothGroups) {
  for (const auto& collective : collectives()) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Sizes ranks = {0, 1, 2, 3};
      ranks.resize(2 + seed % 3);
      const Case given = make_case(collective, Kind::group, ranks, seed);
      run_ranks(
          std::ssize(ranks),
          [&](World& world) {
            SCOPED_TRACE(concat(collective.name, ", seed ", seed));
            const bool is_odd = world.rank() == given.odd;
            const auto error = error_of(given, is_odd ? turned(world) : world.group(), is_odd);
            EXPECT_THAT(
                error,
                AllOf(HasSubstr("deadlock, nobody can go on: rank "),
                      HasSubstr(concat("rank ", given.odd, " waits in ", given.name_of(given.odd))),
                      HasSubstr(concat(" on group world for rank ", given.odd)),
                      HasSubstr(" on group turned for rank ")));
          },
          test_options());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DisagreementTest,
                         ::testing::Values(Kind::op, Kind::shape, Kind::ndim, Kind::dtype,
                                           Kind::reduce_op, Kind::root, Kind::splits, Kind::order,
                                           Kind::peer),
                         [](const auto& kind) {
                           std::string name = kKindNames[static_cast<int>(kind.param)];
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

/// What a rank does in a test of messages, and what it says when it waits for ever.
struct Part {
  std::function<void(const World&)> call;
  std::string waits;
};

/// Two ranks, chosen by the seed, do not understand each other; the others have returned.
class MessageDisagreementTest : public ::testing::Test {
 protected:
  using Make = std::function<std::pair<Part, Part>(std::int64_t from, std::int64_t to,
                                                   const Arguments&, const Arguments&)>;

  static void run(Kind kind, const Make& make, const std::string& reason) {
    for (std::uint64_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
      SCOPED_TRACE(concat("seed ", seed));
      Random random(seed);
      const std::int64_t ranks = random.between(2, 4);
      const std::int64_t from = random.between(0, ranks - 1);
      const std::int64_t to = (from + random.between(1, ranks - 1)) % ranks;
      const Arguments usual = random_arguments(random, ranks);
      const auto [sender, receiver] = make(from, to, usual, changed(usual, kind, to, random));
      std::vector<std::string> errors;
      std::mutex mutex;
      run_ranks(
          ranks,
          [&](World& world) {
            if (world.rank() != from && world.rank() != to) return;
            const auto& part = world.rank() == from ? sender : receiver;
            const auto error = thrown_by<CommError>([&] { part.call(world); });
            const std::lock_guard lock(mutex);
            errors.push_back(error);
          },
          test_options());
      EXPECT_THAT(errors, ::testing::Each(AllOf(HasSubstr(reason),
                                                HasSubstr(concat("rank ", from, sender.waits)),
                                                HasSubstr(concat("rank ", to, receiver.waits)))));
    }
  }
};

TEST_F(MessageDisagreementTest, IsFoundByBothEnds) {
  for (const auto kind : {Kind::shape, Kind::ndim, Kind::dtype}) {
    SCOPED_TRACE(kKindNames[static_cast<int>(kind)]);
    run(
        kind,
        [](std::int64_t from, std::int64_t to, const Arguments& sent, const Arguments& expected) {
          return std::pair{
              Part{[=](const World& world) { send(sent.whole(), to, world.group()); },
                   " calls send("},
              Part{[=](const World& world) { (void)recv(expected.whole(), from, world.group()); },
                   " calls recv("}};
        },
        "the ranks do not agree: ");
  }
}

TEST_F(MessageDisagreementTest, WhoWaitsForAnotherCallIsToldAtOnce) {
  const std::string deadlock = "deadlock, nobody can go on: ";
  const std::string waits_to_send = " waits in send(";
  const std::string waits_to_receive = " waits in recv(";
  const auto sends = [&](std::int64_t peer, const Arguments& sent, std::int64_t tag = 0) {
    return Part{[=](const World& world) { send(sent.whole(), peer, world.group(), tag); },
                waits_to_send};
  };
  const auto receives = [&](std::int64_t peer, const Arguments& sent, std::int64_t tag = 0) {
    return Part{[=](const World& world) { (void)recv(sent.whole(), peer, world.group(), tag); },
                waits_to_receive};
  };
  run(
      Kind::op,
      [&](std::int64_t from, std::int64_t to, const Arguments& sent, const Arguments& /*odd*/) {
        return std::pair{sends(to, sent), sends(from, sent)};
      },
      deadlock);
  run(
      Kind::op,
      [&](std::int64_t from, std::int64_t to, const Arguments& sent, const Arguments& /*odd*/) {
        return std::pair{receives(to, sent), receives(from, sent)};
      },
      deadlock);
  run(
      Kind::order,
      [&](std::int64_t from, std::int64_t to, const Arguments& sent, const Arguments& /*odd*/) {
        return std::pair{sends(to, sent, 1), receives(from, sent, 2)};
      },
      deadlock);
  run(
      Kind::group,
      [&](std::int64_t from, std::int64_t to, const Arguments& sent, const Arguments& /*odd*/) {
        const auto call = [=](const World& world) {
          send(sent.whole(), world.size() - 1 - to, turned(world));
        };
        return std::pair{Part{call, waits_to_send}, receives(from, sent)};
      },
      deadlock);
}

}  // namespace
}  // namespace tessera::test
