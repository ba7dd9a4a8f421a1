#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/group.h"

namespace tessera {

namespace detail {
class WorldState;
}

/// How a world is set up.
struct WorldOptions {
  /// How long a rank waits for the others in one operation; for asynchronous messages between
  /// processes it counts from the call.
  std::chrono::milliseconds timeout{60'000};
  /// Compare what the ranks call before data moves; see `docs/errors.md`. The environment variable
  /// `TESSERA_CHECK=0` switches it off.
  bool check = true;
};

/// All ranks that run together, as one of them sees it. A handle: cheap to copy.
///
/// `launch` and `run_ranks` make it and pass it to the function that each rank runs; there,
/// `World::current()` finds it too.
class World {
 public:
  /// The world of the calling rank. Throws `InvalidArgument` outside of `launch` and `run_ranks`.
  [[nodiscard]] static World current();
  /// True inside of `launch` and `run_ranks`.
  [[nodiscard]] static bool is_running();

  /// The calling rank, from 0 to `size` - 1.
  [[nodiscard]] std::int64_t rank() const;
  [[nodiscard]] std::int64_t size() const;
  /// `threads`, `gloo`, `mpi`, or the name of an adopted backend.
  [[nodiscard]] const char* engine() const;
  /// As the environment changed them.
  [[nodiscard]] const WorldOptions& options() const;

  /// The group of all ranks.
  [[nodiscard]] Group group() const;

  /// The group of the given global ranks in the given order, this one among them. The same ranks
  /// give the same group. Throws `InvalidArgument` for ranks outside of the world, repeated ones,
  /// and when this rank is not a member. Members must ask for new groups in the same order. `name`
  /// is for messages, see `Group::name`.
  [[nodiscard]] Group group(const std::vector<std::int64_t>& ranks, std::string name = {}) const;

  /// Made by `launch`, `run_ranks` and `adopt`.
  explicit World(std::shared_ptr<detail::WorldState> state) : state_(std::move(state)) {}
  /// What it refers to; for Tessera itself.
  [[nodiscard]] detail::WorldState& state() const { return *state_; }

 private:
  std::shared_ptr<detail::WorldState> state_;
};

/// Runs `fn` on `ranks` threads of this process, each as one rank, and returns when all have.
///
/// When a rank throws, the others' operations fail promptly with `CommError`, and the exception of
/// the first rank that threw is rethrown here, as an `Error` that names the rank with the original
/// nested in it (an `InvalidArgument` stays one, and a `CommError`, which names a rank already, is
/// rethrown as it is). When everybody waits for something that cannot come, they fail at once. When a
/// thread cannot be started, those that run already are failed, and an `Error` says so.
///
/// Unless `OMP_NUM_THREADS` is set, the ranks share the cores: torch uses cores / ranks threads, at
/// least 1, in each of them.
void run_ranks(std::int64_t ranks, const std::function<void(World&)>& fn,
               const WorldOptions& options = {});

/// Runs `fn` as one rank of whatever the program was started by, and returns what `main` should.
///
/// Under torchrun, mpirun or srun the process is one rank; otherwise `--ranks N` threads of this
/// process are (1 unless given). `--engine threads|gloo|mpi` overrides the choice, `--timeout S` the
/// time limit. These flags are taken out of `argc` and `argv`; the rest are the program's. See
/// `docs/launching.md` for the variables and their precedence.
///
/// An exception is printed with its rank to stderr and gives a return value other than 0. With the
/// mpi engine a failure ends the whole job, even one that a rank has handled.
int launch(int& argc, char** argv, const std::function<void(World&)>& fn,
           WorldOptions options = {});

}  // namespace tessera
