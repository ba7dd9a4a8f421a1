#include "tessera/comm/mpi/mpi_board.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace tessera::detail {

MpiBoard::MpiBoard(std::shared_ptr<MpiRuntime> runtime)
    : runtime_(std::move(runtime)), statuses_(static_cast<std::size_t>(runtime_->size())) {}

void MpiBoard::post(const RankStatus& status) {
  // What outlives MPI has nobody left to tell.
  if (MpiRuntime::has_ended()) return;
  const std::lock_guard lock(mutex_);
  Letter& letter = letters_.emplace_back();
  letter.text = encode(status);
  const int length = static_cast<int>(letter.text.size());
  for (int rank = 0; rank < runtime_->size(); ++rank) {
    if (rank == runtime_->rank()) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        MPI_Isend(letter.text.data(), length, MPI_CHAR, rank, kTag, runtime_->control(), &request);
    if (code == MPI_SUCCESS) letter.sent.requests.push_back(request);
  }
}

void MpiBoard::exchange() {
  while (!MpiRuntime::has_ended()) {
    int arrived = 0;
    MPI_Status envelope;
    MPI_Message message = MPI_MESSAGE_NULL;
    const int code =
        MPI_Improbe(MPI_ANY_SOURCE, kTag, runtime_->control(), &arrived, &message, &envelope);
    if (code != MPI_SUCCESS || arrived == 0) break;
    int length = 0;
    MPI_Get_count(&envelope, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    if (MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
    statuses_[static_cast<std::size_t>(envelope.MPI_SOURCE)] = decode_status(text);
  }
  if (MpiRuntime::has_ended()) return;
  letters_.remove_if([](Letter& letter) {
    try {
      return letter.sent.test();
    } catch (const std::exception&) {
      // It will not arrive, and who does not get it has worse to say.
      return true;
    }
  });
}

void MpiBoard::take_in() {
  const std::lock_guard lock(mutex_);
  exchange();
}

std::optional<RankStatus> MpiBoard::latest(std::int64_t rank) {
  const std::lock_guard lock(mutex_);
  exchange();
  return statuses_[static_cast<std::size_t>(rank)];
}

void MpiBoard::refresh(std::chrono::milliseconds limit) {
  // Messages take microseconds; after some without one nothing more is on its way.
  constexpr std::chrono::milliseconds kQuiet{5};
  const auto end = std::chrono::steady_clock::now() + std::min(limit, kQuiet);
  while (std::chrono::steady_clock::now() < end) {
    take_in();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace tessera::detail
