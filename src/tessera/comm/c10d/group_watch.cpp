#include "tessera/comm/c10d/group_watch.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

Milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
}

/// An engine's message can be a page with a stack; its first line says what happened.
std::string first_line_of(const std::string& words) { return words.substr(0, words.find('\n')); }

}  // namespace

std::string WatchedCall::to_string() const { return concat(op, '(', arguments, ')'); }

GroupWatch::GroupWatch(std::string name, std::vector<std::int64_t> ranks, Milliseconds timeout,
                       bool is_compared, std::shared_ptr<Peers> peers)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      key_(group_key(ranks_)),
      timeout_(timeout),
      is_compared_(is_compared),
      peers_(std::move(peers)) {}

bool GroupWatch::has_failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

void GroupWatch::check_usable(const char* op) const {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) return;
  throw CommError(concat("the group cannot be used any more since it failed: ", failure_),
                  {peers_->rank(), name_, op, Milliseconds(0)});
}

WatchedCall GroupWatch::begin(const char* op, std::string arguments) {
  check_usable(op);
  WatchedCall call{.op = op, .arguments = std::move(arguments)};
  call.number = peers_->count_call(key_);
  return call;
}

WatchedCall GroupWatch::begin(const WatchedMessage& message, std::string arguments) {
  const char* op = message.is_send ? "send" : "recv";
  check_usable(op);
  WatchedCall call{.op = op, .arguments = std::move(arguments), .peer = message.peer};
  if (!message.is_compared) return call;
  const std::int64_t from = message.is_send ? peers_->rank() : message.peer;
  const std::int64_t to = message.is_send ? message.peer : peers_->rank();
  const std::string key = concat(key_, from, '>', to, '#', message.tag);
  call.peer_key = key + (message.is_send ? 'r' : 's');
  call.number = peers_->count_message(key + (message.is_send ? 's' : 'r'));
  return call;
}

bool GroupWatch::is_hopeless(const WatchedCall& call, Milliseconds waited) {
  hopeless_ = finds_no_hope(call, waited);
  return hopeless_;
}

bool GroupWatch::finds_no_hope(const WatchedCall& call, Milliseconds waited) {
  if (waited >= std::min(peers_->suspicion(), timeout_ / 4)) {
    // Whoever waits for this rank elsewhere will want to know where it is.
    if (!std::exchange(posted_waiting_, true)) peers_->post_waiting(status_in(call));
    if (is_compared_ && call.number > 0) deadlock_ = peers_->find_deadlock().value_or("");
    if (!deadlock_.empty()) return true;
  }
  const Findings findings = look(call, /*has_failed=*/false);
  return !findings.culprits.empty() || findings.has_fellows;
}

RankStatus GroupWatch::status_in(const WatchedCall& call) const {
  RankStatus status;
  status.group = name_;
  status.call = call.to_string();
  const auto only = call.peer ? std::vector{*call.peer} : ranks_;
  status.awaited = {only, key_of(call), call.number};
  return status;
}

const std::string& GroupWatch::key_of(const WatchedCall& call) const {
  return call.peer ? call.peer_key : key_;
}

void GroupWatch::end_wait() {
  deadlock_.clear();
  hopeless_ = false;
  if (std::exchange(posted_waiting_, false)) peers_->post_going_on();
}

void GroupWatch::fail(const WatchedCall& call, const std::string& engine_words) {
  // Another call may have failed the group before. Nothing more is posted then, but that this wait is over.
  if (has_failed()) end_wait();
  check_usable(call.op);
  if (!deadlock_.empty()) fail_because(call, deadlock_);
  peers_->post_failed(status_in(call), key_);
  const bool is_overdue = engine_words.empty() && !hopeless_;
  fail_because(call, explain(search(call, is_overdue), call, first_line_of(engine_words)));
}

void GroupWatch::fail_because(const WatchedCall& call, const std::string& reason) {
  RankStatus status = status_in(call);
  status.reason = reason;
  peers_->post_failed(status, key_);
  posted_waiting_ = false;
  // What this rank knows must be out before its process may end.
  peers_->board().refresh(Milliseconds(100));
  {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
  }
  throw CommError(reason, {peers_->rank(), name_, call.op, since(call.begin)});
}

GroupWatch::Findings GroupWatch::search(const WatchedCall& call, bool is_overdue) const {
  const auto begin = Clock::now();
  while (true) {
    Findings findings = look(call, /*has_failed=*/true);
    if (findings.has_unexplained) {
      // Its last words were posted before it ended, so they can be read by now.
      peers_->board().refresh(Milliseconds(200));
      findings = look(call, /*has_failed=*/true);
    }
    // Those that failed too may still be finding out why.
    const bool may_explain = findings.has_fellows && findings.fellows.empty();
    const bool certain = !findings.culprits.empty() || (findings.silent.empty() && !may_explain);
    // When an engine has noticed something, it may take a while until a process is seen to have ended. When
    // the time is just up, there was time enough for that. Who is silent and has a process that is there can
    // only turn out to wait as well: it came later, and says so when it looks around and finds that this rank
    // has given up. Who failed too sees the same processes, and so will not know more.
    const Milliseconds grace = is_overdue && !findings.has_unseen ? kAnswer : kGrace;
    if (certain || since(begin) >= grace) return findings;
    peers_->board().refresh(Milliseconds(20));
    std::this_thread::sleep_for(Milliseconds(10));
  }
}

GroupWatch::Findings GroupWatch::look(const WatchedCall& call, bool has_failed) const {
  Findings findings;
  for (const auto rank : ranks_) {
    if (rank == peers_->rank() || (call.peer && *call.peer != rank)) continue;
    look_at(rank, call, has_failed, findings);
  }
  return findings;
}

void GroupWatch::look_at(std::int64_t rank, const WatchedCall& call, bool has_failed,
                         Findings& findings) const {
  const ProcessIdentity& process = peers_->process(rank);
  const Liveness liveness = liveness_of(process);
  const auto status = peers_->board().latest(rank);
  const auto made =
      status && call.number > 0 ? calls_on(status->calls, key_of(call)) : std::nullopt;
  const bool has_called = made && *made >= call.number;
  // Who has left may have made this call before, so that what it sent is still on its way. Not all messages
  // are counted.
  const bool may_have_called = !has_failed && status && (has_called || (call.peer && !made));
  if (status && names_group(status->failed_groups, key_)) {
    findings.has_fellows = true;
    std::string words = concat("rank ", rank, " failed");
    if (!status->call.empty()) words += concat(" in ", status->call);
    const std::string why = concat(words, ": ", status->reason);
    if (!status->reason.empty()) findings.fellows.push_back(why);
    // Who found that nobody can go on knows more than who waits.
    const auto deadlock = decode_deadlock(status->deadlock);
    if (deadlock && deadlock->text == status->reason) {
      findings.culprits.push_back(why);
      return;
    }
    // One that has left since then says why, but not in which call.
    if (call.peer) findings.culprits.push_back(status->call.empty() ? why : words);
  } else if (status && status->kind == RankStatus::Kind::left && !may_have_called) {
    const char* how =
        has_called ? " has made this call and returned" : " has returned without calling it";
    findings.culprits.push_back(status->reason.empty()
                                    ? concat("rank ", rank, how)
                                    : concat("rank ", rank, " failed: ", status->reason));
  } else if (status && status->kind == RankStatus::Kind::waiting && has_called &&
             liveness == Liveness::running) {
    // It waits in the same call, or a later one, and so has come.
  } else if (liveness == Liveness::ended) {
    findings.has_unexplained = true;
    findings.culprits.push_back(
        concat("rank ", rank, " is gone: ", process.to_string(), " has ended"));
  } else {
    std::string words = concat("rank ", rank, " did not come");
    if (liveness == Liveness::unknown) {
      findings.has_unseen = true;
    } else {
      words += concat(" (", process.to_string(),
                      liveness == Liveness::stopped ? " is stopped)" : " is running)");
    }
    if (status && !status->call.empty()) {
      words += concat(", it calls ", status->call, " on group ", status->group);
    }
    findings.silent.push_back(words);
  }
}

std::string GroupWatch::explain(const Findings& findings, const WatchedCall& call,
                                const std::string& engine_words) const {
  std::string reason = findings.has_fellows ? "others failed in it too" : "no rank is missing";
  if (!findings.culprits.empty()) {
    reason = joined(findings.culprits, "; ");
  } else if (!findings.silent.empty()) {
    reason = joined(findings.silent, "; ");
  } else if (!findings.fellows.empty()) {
    return findings.fellows.front();
  }
  const std::string trouble = peers_->board().trouble();
  if (!trouble.empty()) reason += concat("; ", trouble);
  const bool timed_out = findings.culprits.empty() && since(call.begin) >= timeout_;
  if (timed_out) reason += concat("; the time limit is ", timeout_.count(), " ms");
  // Who is known to be gone explains what the engine has noticed of it.
  const bool is_explained = !findings.culprits.empty();
  if (!engine_words.empty() && !is_explained) reason += concat(" (", engine_words, ')');
  return concat(reason, ", in ", call.to_string());
}

}  // namespace tessera::detail
