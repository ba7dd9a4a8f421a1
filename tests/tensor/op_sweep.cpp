#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/op_outcome.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/tensor/fallback_log.h"

namespace tessera::test {
namespace {

/// True for errors that the docs promise.
bool is_promised(const Case& tested, const std::string& error) {
  return tested.expected.error ||
         (tested.twice && error.find("can be differentiated once only") != std::string::npos);
}

/// What happened to the cases of one batch.
struct Report {
  std::int64_t passed = 0;
  std::int64_t refused = 0;
  /// Ops of which at least one case passed, and why others were refused.
  std::set<std::string> working;
  /// Ops of which at least one case was served by rules alone.
  std::set<std::string> served;
  std::map<std::string, std::string> errors;
  std::vector<std::string> failures;
};

/// Cases on the same number of ranks, run one after the other by the same threads. After an exception
/// the ranks are not in step any more, so the rest is done by new ones.
class Batch {
 public:
  Batch(std::vector<Case> cases, Report& report) : cases_(std::move(cases)), report_(report) {}

  void run() {
    for (auto& tested : cases_) expect(tested);
    std::size_t first = 0;
    while (first < cases_.size()) first = run_from(first);
  }

 private:
  struct Thrown {
    std::size_t index = 0;
    bool is_cause = false;
    std::string text;
  };

  std::size_t run_from(std::size_t first) {
    const auto ranks = static_cast<std::size_t>(cases_.front().ranks);
    std::vector<std::vector<std::string>> wrong(ranks, std::vector<std::string>(cases_.size()));
    std::vector<std::optional<Thrown>> thrown(ranks);
    is_served_.assign(cases_.size(), false);
    try {
      run_ranks(
          cases_.front().ranks,
          [&](World& world) {
            const auto rank = static_cast<std::size_t>(world.rank());
            run_on(world, first, wrong[rank], thrown[rank]);
          },
          test_options());
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): each rank kept its own.
    }
    const Thrown* cause = cause_of(thrown);
    const std::size_t end = cause == nullptr ? cases_.size() : cause->index;
    for (std::size_t i = first; i < end; ++i) judge(i, wrong);
    if (cause == nullptr) return end;
    if (is_promised(cases_[end], cause->text)) {
      ++report_.refused;
      report_.errors[cases_[end].entry->name] = cause->text;
    } else {
      report_.failures.push_back(concat(describe_case(cases_[end]), "threw ", cause->text));
    }
    return end + 1;
  }

  void run_on(World& world, std::size_t first, std::vector<std::string>& wrong,
              std::optional<Thrown>& thrown) {
    std::vector<DeviceMesh> meshes;
    for (const auto& sizes : mesh_sizes(cases_.front().ranks)) {
      meshes.push_back(init_device_mesh("cpu", sizes));
    }
    for (std::size_t i = first; i < cases_.size(); ++i) {
      const detail::FallbackLog log;
      try {
        wrong[i] = run_case(cases_[i], meshes[cases_[i].mesh]);
        if (world.rank() == 0) is_served_[i] = log.ops().empty();
      } catch (const CommError& error) {
        thrown = Thrown{i, false, error.what()};
        throw;
      } catch (const std::exception& error) {
        thrown = Thrown{i, true, error.what()};
        throw;
      }
    }
  }

  /// The first exception that is not the consequence of another rank's.
  static const Thrown* cause_of(const std::vector<std::optional<Thrown>>& thrown) {
    const Thrown* cause = nullptr;
    for (const auto& own : thrown) {
      if (!own) continue;
      const bool is_better = cause == nullptr || (own->is_cause && !cause->is_cause) ||
                             (own->is_cause == cause->is_cause && own->index < cause->index);
      if (is_better) cause = &*own;
    }
    return cause;
  }

  void judge(std::size_t index, const std::vector<std::vector<std::string>>& wrong) {
    for (std::size_t rank = 0; rank < wrong.size(); ++rank) {
      if (wrong[rank][index].empty()) continue;
      report_.failures.push_back(
          concat(describe_case(cases_[index]), "on rank ", rank, ": ", wrong[rank][index]));
      return;
    }
    ++report_.passed;
    report_.working.insert(cases_[index].entry->name);
    if (is_served_[index]) report_.served.insert(cases_[index].entry->name);
  }

  std::vector<Case> cases_;
  /// By case, as rank 0 saw it.
  std::vector<bool> is_served_;
  Report& report_;
};

constexpr std::size_t kBatch = 128;
constexpr std::size_t kShownFailures = 12;

const char* environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any.
  return value == nullptr ? "" : value;
}

struct Selection {
  std::string op;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// What the environment asks for; nothing when it asks for another family.
std::optional<Selection> selection_for(const std::string& family, std::int64_t cases_per_op) {
  Selection all{"", 0, static_cast<std::uint64_t>(cases_per_op)};
  const std::string seeds = environment("TESSERA_OP_SEEDS");
  if (const auto colon = seeds.find(':'); colon != std::string::npos) {
    all.first = std::stoull(seeds.substr(0, colon));
    all.count = std::stoull(seeds.substr(colon + 1));
  }
  const std::string only = environment("TESSERA_OP_CASE");
  if (only.empty()) return all;
  const auto slash = only.find('/');
  const auto colon = only.rfind(':');
  if (only.substr(0, slash) != family) return std::nullopt;
  if (colon == std::string::npos) return Selection{only.substr(slash + 1), all.first, all.count};
  return Selection{only.substr(slash + 1, colon - slash - 1), std::stoull(only.substr(colon + 1)),
                   1};
}

}  // namespace

void check_family(const std::string& family, const std::vector<OpEntry>& entries,
                  std::int64_t cases_per_op) {
  const auto selection = selection_for(family, cases_per_op);
  if (!selection) return;
  Report report;
  std::vector<std::vector<Case>> waiting(5);
  const auto run = [&](std::vector<Case>& cases) {
    if (!cases.empty()) Batch(std::move(cases), report).run();
    cases.clear();
  };
  for (const auto& entry : entries) {
    if (!selection->op.empty() && selection->op != entry.name) continue;
    for (std::uint64_t i = 0; i < selection->count; ++i) {
      Case made = make_case(family, entry, selection->first + i);
      auto& others = waiting[static_cast<std::size_t>(made.ranks)];
      others.push_back(std::move(made));
      if (others.size() == kBatch) run(others);
    }
  }
  for (auto& cases : waiting) run(cases);
  std::cout << family << ": " << entries.size() << " ops, seeds " << selection->first << " to "
            << selection->first + selection->count - 1 << ", " << report.passed << " cases passed, "
            << report.refused << " were refused as they should be, " << report.failures.size()
            << " failed";
  for (const auto& op : report.working) {
    if (!report.served.contains(op)) std::cout << "; no rule: " << op;
  }
  std::cout << std::endl;
  for (const auto& [op, error] : report.errors) {
    EXPECT_TRUE(report.working.contains(op) || selection->count == 1)
        << family << '/' << op << " is refused whatever the arguments: " << error;
  }
  EXPECT_GT(report.passed + report.refused + std::ssize(report.failures), 0) << "no such op";
  for (std::size_t i = 0; i < report.failures.size() && i < kShownFailures; ++i) {
    ADD_FAILURE() << report.failures[i];
  }
  if (report.failures.size() > kShownFailures) {
    ADD_FAILURE() << report.failures.size() - kShownFailures << " more cases failed:";
    for (std::size_t i = kShownFailures; i < report.failures.size(); ++i) {
      std::cout << report.failures[i].substr(0, report.failures[i].find(' ')) << '\n';
    }
  }
}

void check_sample(const std::string& family, const std::vector<OpEntry>& entries,
                  std::int64_t count) {
  const World world = World::current();
  std::vector<DeviceMesh> meshes;
  for (const auto& sizes : mesh_sizes(world.size())) {
    meshes.push_back(init_device_mesh("cpu", sizes));
  }
  Random random(17);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& entry = random.pick(entries);
    Case tested = make_case(family, entry, static_cast<std::uint64_t>(i), world.size());
    if (entry.check == OpCheck::random) continue;
    tested.twice = false;
    expect(tested);
    if (tested.expected.error) continue;
    const std::string wrong = run_case(tested, meshes[tested.mesh]);
    if (!wrong.empty()) throw Error(concat(describe_case(tested), wrong));
  }
}

}  // namespace tessera::test
