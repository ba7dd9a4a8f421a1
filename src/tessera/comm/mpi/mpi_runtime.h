#pragma once

#include <any>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <mpi.h>

namespace tessera::detail {

/// Throws `std::runtime_error` with MPI's words unless `code` says success.
void check_mpi(int code, const char* function);

/// Requests of an operation, and what must stay alive until they are complete.
struct MpiRequests {
  std::vector<MPI_Request> requests;
  std::any keep_alive;
  /// Room for what MPI says about each of them.
  std::vector<MPI_Status> statuses;

  /// True when all are complete.
  [[nodiscard]] bool test();
};

/// An operation under way: shared by who waits for it and the runtime, which sees it through even
/// when nobody waits, or only after MPI has ended. Any thread may use it.
class MpiOperation {
 public:
  explicit MpiOperation(MpiRequests requests) : requests_(std::move(requests)) {}

  /// True when it is complete, or has failed: then it throws `std::runtime_error`, each time.
  [[nodiscard]] bool test();
  /// True when it is known to have ended, by whoever tested it.
  [[nodiscard]] bool has_ended();

 private:
  std::mutex mutex_;
  MpiRequests requests_;
  bool ended_ = false;
  std::string error_;
};

/// MPI itself: started once per process, ended by `finalize` or `abort`.
class MpiRuntime {
 public:
  /// Starts MPI. Throws `InvalidArgument` when it has ended before, or cannot be used by several
  /// threads.
  MpiRuntime();
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// All ranks, for what they tell each other besides their data.
  [[nodiscard]] MPI_Comm control() const { return control_; }

  /// Every rank's text, by rank; all must call it. Texts are cut at `kLongestText`.
  static constexpr std::size_t kLongestText = 512;
  [[nodiscard]] std::vector<std::string> all_gather_text(const std::string& text) const;

  /// Makes the communicator of some ranks; all of them call it, and must be known to.
  [[nodiscard]] MPI_Comm make_comm(const std::vector<std::int64_t>& ranks) const;

  /// Adds an operation that was begun.
  [[nodiscard]] std::shared_ptr<MpiOperation> add(MpiRequests requests);
  /// True when all that were begun have ended.
  [[nodiscard]] bool is_quiet();

  /// Ends MPI, after all ranks have come.
  void finalize();
  /// Prints why, and ends all ranks of the job.
  [[noreturn]] void abort(const std::string& why) const;
  /// True after `finalize`: nothing of MPI may be called.
  [[nodiscard]] static bool has_ended();

 private:
  bool owns_mpi_ = false;
  int rank_ = 0;
  int size_ = 1;
  MPI_Comm control_ = MPI_COMM_NULL;
  std::mutex mutex_;
  /// Those that have ended are forgotten when the next one is added.
  std::vector<std::shared_ptr<MpiOperation>> begun_;
};

/// Sleeps a little, the longer the longer it is called: at first it only lets others run, since
/// there may be more ranks than cores.
class MpiBackoff {
 public:
  void pause();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tessera::detail
