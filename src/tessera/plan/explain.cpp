#include <algorithm>
#include <sstream>

#include "tessera/base/concat.h"
#include "tessera/base/json_writer.h"
#include "tessera/base/units.h"
#include "tessera/plan/estimate.h"
#include "tessera/plan/redistribute_plan.h"
#include "tessera/plan/roles.h"

namespace tessera {
namespace {

/// Up to this many ranks are shown one by one.
constexpr std::size_t kMostShown = 16;

std::string describe(const Layout& from, const Layout& to) {
  return from.mesh() == to.mesh() ? concat(from, " to ", to.placements_text())
                                  : concat(from, " to ", to.placements_text(), " on ", to.mesh());
}

void explain_steps(std::ostream& os, const std::vector<Step>& steps, const char* indent) {
  std::size_t number = 1;
  for (const auto& step : steps) {
    os << indent << number++ << ". " << step << ", " << format_picoseconds(step.cost_ps) << '\n';
  }
}

void explain_ranks(std::ostream& os, const PlanSummary& summary) {
  for (std::size_t i = 0; i < std::min(summary.ranks.size(), kMostShown); ++i) {
    const RankPlan& part = *summary.parts[i];
    os << "  rank " << summary.ranks[i] << ": receives "
       << format_bytes(part.traffic.received_bytes) << " (bound " << format_bytes(part.bound_bytes)
       << "), sends " << format_bytes(part.traffic.sent_bytes) << ", " << part.traffic.messages
       << " message(s), peak " << format_bytes(part.peak_bytes) << '\n';
  }
  if (summary.ranks.size() > kMostShown || !summary.complete) {
    os << "  ... (" << summary.ranks.size() << " ranks looked at)\n";
  }
}

/// Where the chosen plan receives more than it must, says why that is cheaper.
void explain_excess(std::ostream& os, const RedistributePlan& plan, const PlanSummary& summary,
                    const std::vector<Candidate>& candidates) {
  // Where contributions are reduced, the bound of a single rank is out of reach for all together.
  const detail::Roles roles(plan.from(), plan.to());
  if (!summary.above_bound || !roles.contributions.empty()) return;
  for (const auto& other : candidates) {
    if (other.name != "direct exchange") continue;
    const Traffic& direct = other.steps.front().worst;
    os << "above the bound by choice: the direct exchange would receive only "
       << format_bytes(other.received_bytes) << " but cost " << format_picoseconds(other.cost_ps)
       << " against " << format_picoseconds(plan.cost_ps()) << ", for " << direct.messages
       << " message(s) and " << format_bytes(direct.packed_bytes) << " to pack\n";
    return;
  }
  os << "above the bound: the direct exchange does not fit the staging budget of "
     << format_bytes(plan.options().staging_budget) << '\n';
}

void explain_rejected(std::ostream& os, const std::vector<Candidate>& candidates) {
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const Candidate& other = candidates[i];
    os << "rejected: " << other.name << ", " << format_picoseconds(other.cost_ps) << ", receives "
       << format_bytes(other.received_bytes) << '\n';
    explain_steps(os, other.steps, "    ");
  }
}

void write_steps(detail::JsonWriter& json, const std::vector<Step>& steps) {
  json.key("steps").begin_array();
  for (const auto& step : steps) {
    json.begin_object()
        .member("kind", to_string(step.kind))
        .member("from", step.from.to_string())
        .member("to", step.to.to_string())
        .member("mesh_dims", step.mesh_dims)
        .member("tensor_dim", step.tensor_dim)
        .member("rounds", step.rounds)
        .member("cost_ps", step.cost_ps)
        .end_object();
  }
  json.end_array();
}

}  // namespace

std::string RedistributePlan::explain() const {
  std::ostringstream os;
  os << "redistribute " << describe(from(), to()) << ", " << options().element_size
     << " byte(s) per element\n";
  if (steps().empty()) {
    os << "nothing to do: every rank already holds its part\n";
    return std::move(os).str();
  }
  const PlanSummary ranks = summary();
  os << "chosen: " << name() << ", " << format_picoseconds(cost_ps()) << " by the cost model\n";
  explain_steps(os, steps(), "  ");
  os << "received: at most " << format_bytes(ranks.most_received_bytes) << " by a rank (bound "
     << format_bytes(ranks.most_bound_bytes) << "), " << format_bytes(ranks.mean_received_bytes)
     << " on average (bound " << format_bytes(ranks.mean_bound_bytes) << ")\n";
  os << "messages: at most " << ranks.most_messages << "; peak memory: at most "
     << format_bytes(ranks.most_peak_bytes) << ", of which buffers "
     << format_bytes(ranks.most_staging_bytes) << '\n';
  explain_ranks(os, ranks);
  const auto considered = candidates();
  explain_excess(os, *this, ranks, considered);
  explain_rejected(os, considered);
  return std::move(os).str();
}

std::string RedistributePlan::explain_json() const {
  const PlanSummary ranks = summary();
  detail::JsonWriter json;
  json.begin_object()
      .member("from", from().to_string())
      .member("to", to().to_string())
      .member("element_size", options().element_size)
      .member("chosen", name())
      .member("cost_ps", cost_ps());
  write_steps(json, steps());
  json.member("received_bytes_max", ranks.most_received_bytes)
      .member("received_bytes_mean", ranks.mean_received_bytes)
      .member("bound_bytes_max", ranks.most_bound_bytes)
      .member("bound_bytes_mean", ranks.mean_bound_bytes)
      .member("messages_max", ranks.most_messages)
      .member("peak_bytes_max", ranks.most_peak_bytes)
      .member("all_ranks", ranks.complete);
  json.key("ranks").begin_array();
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    const RankPlan& part = *ranks.parts[i];
    json.begin_object()
        .member("rank", ranks.ranks[i])
        .member("received_bytes", part.traffic.received_bytes)
        .member("bound_bytes", part.bound_bytes)
        .member("sent_bytes", part.traffic.sent_bytes)
        .member("messages", part.traffic.messages)
        .member("peak_bytes", part.peak_bytes)
        .end_object();
  }
  json.end_array();
  json.key("rejected").begin_array();
  const auto considered = candidates();
  for (std::size_t i = 1; i < considered.size(); ++i) {
    json.begin_object()
        .member("name", considered[i].name)
        .member("cost_ps", considered[i].cost_ps)
        .member("received_bytes", considered[i].received_bytes);
    write_steps(json, considered[i].steps);
    json.end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace tessera
