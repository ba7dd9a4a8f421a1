#include "tessera/comm/mpi/mpi_runtime.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include <sched.h>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

bool has_begun() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

}  // namespace

void check_mpi(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(code, words.data(), &length);
  throw std::runtime_error(concat(function, ": ", words.data()));
}

bool MpiRequests::test() {
  if (requests.empty()) return true;
  if (MpiRuntime::has_ended()) throw std::runtime_error("MPI has ended with its world");
  int done = 0;
  statuses.resize(requests.size());
  const int code =
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const auto& status : statuses) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) check_mpi(status.MPI_ERROR, "MPI_Testall");
    }
  }
  check_mpi(code, "MPI_Testall");
  if (done == 0) return false;
  requests.clear();
  keep_alive.reset();
  return true;
}

bool MpiOperation::test() {
  const std::lock_guard lock(mutex_);
  if (!ended_) {
    try {
      ended_ = requests_.test();
    } catch (const std::exception& error) {
      ended_ = true;
      error_ = error.what();
    }
  }
  if (!error_.empty()) throw std::runtime_error(error_);
  return ended_;
}

bool MpiOperation::has_ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

MpiRuntime::MpiRuntime() {
  TESSERA_CHECK(!has_ended(),
                "launch: a second MPI world asked for; MPI has ended with the first, and cannot "
                "start again in the same process");
  int provided = MPI_THREAD_SINGLE;
  if (has_begun()) {
    MPI_Query_thread(&provided);
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owns_mpi_ = true;
    // Errors are to be told, not to end the process; a program that has started MPI itself decides
    // that for its own communicators.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  TESSERA_CHECK(provided == MPI_THREAD_MULTIPLE, "launch: MPI gives thread level ", provided,
                "; Tessera needs MPI_THREAD_MULTIPLE");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(control_, &rank_);
  MPI_Comm_size(control_, &size_);
}

MpiRuntime::~MpiRuntime() = default;

std::vector<std::string> MpiRuntime::all_gather_text(const std::string& text) const {
  std::array<char, kLongestText> own{};
  std::copy_n(text.begin(), std::min(text.size(), kLongestText - 1), own.begin());
  std::vector<char> all(kLongestText * static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(own.data(), kLongestText, MPI_CHAR, all.data(), kLongestText, MPI_CHAR,
                          control_),
            "MPI_Allgather");
  std::vector<std::string> texts;
  for (auto it = all.begin(); it != all.end(); it += kLongestText) texts.emplace_back(&*it);
  return texts;
}

MPI_Comm MpiRuntime::make_comm(const std::vector<std::int64_t>& ranks) const {
  const std::vector<int> members(ranks.begin(), ranks.end());
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(control_, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(control_, group, /*tag=*/0, &comm), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

std::shared_ptr<MpiOperation> MpiRuntime::add(MpiRequests requests) {
  auto operation = std::make_shared<MpiOperation>(std::move(requests));
  const std::lock_guard lock(mutex_);
  std::erase_if(begun_, [](const auto& each) { return each->has_ended(); });
  begun_.push_back(operation);
  return operation;
}

bool MpiRuntime::is_quiet() {
  const std::lock_guard lock(mutex_);
  std::erase_if(begun_, [](const auto& each) {
    try {
      return each->test();
    } catch (const std::exception&) {
      return true;  // Whoever waits for it is told.
    }
  });
  return begun_.empty();
}

void MpiRuntime::finalize() {
  MPI_Comm_free(&control_);
  if (owns_mpi_) MPI_Finalize();
}

void MpiRuntime::abort(const std::string& why) const {
  std::fprintf(stderr, "tessera: rank %d ends the MPI job: %s\n", rank_, why.c_str());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

bool MpiRuntime::has_ended() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

void MpiBackoff::pause() {
  // By the clock, not by count: among busy strangers one yield can take milliseconds, while who
  // sleeps is let run as soon as it wakes.
  constexpr std::chrono::microseconds kYield{200};
  constexpr std::chrono::milliseconds kShortSleeps{5};
  const auto waited = Clock::now() - begin_;
  if (waited < kYield) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(waited < kShortSleeps ? 20 : 200));
  }
}

}  // namespace tessera::detail
