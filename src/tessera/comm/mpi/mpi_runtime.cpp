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
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  if (done == 0) return false;
  requests.clear();
  keep_alive.reset();
  return true;
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
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, /*tag=*/0, &comm),
            "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

void MpiRuntime::keep(MpiRequests requests) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(requests));
}

bool MpiRuntime::is_quiet() {
  const std::lock_guard lock(mutex_);
  while (!kept_.empty() && kept_.back().test()) kept_.pop_back();
  return kept_.empty();
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
  constexpr int kYields = 200;
  constexpr int kShortSleeps = 400;
  ++count_;
  if (count_ < kYields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(count_ < kShortSleeps ? 20 : 200));
  }
}

}  // namespace tessera::detail
