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

  /// True when all are complete.
  [[nodiscard]] bool test();
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

  /// Takes over an operation that nobody waits for any more, but that is not complete.
  void keep(MpiRequests requests);
  /// True when all that was kept is complete.
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
  std::vector<MpiRequests> kept_;
};

/// Sleeps a little, the longer the longer it is called: at first it only lets others run, since
/// there may be more ranks than cores.
class MpiBackoff {
 public:
  void pause();

 private:
  int count_ = 0;
};

}  // namespace tessera::detail
