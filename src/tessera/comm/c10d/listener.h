#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/c10d/engines.h"

namespace tessera::detail {

/// An address as numbers.
struct Endpoint {
  /// `127.0.0.1`, `10.0.0.3` or `fd00::3`.
  std::string host;
  bool is_loopback = false;
};

/// What messages call the address and the port: `MASTER_PORT=29500`, or the value and how it was found,
/// `port 22852 (derived from SLURM_JOB_ID=77 and SLURM_STEP_ID=3)`.
[[nodiscard]] std::string address_text(const Rendezvous& rendezvous);
[[nodiscard]] std::string port_text(const Rendezvous& rendezvous);

/// Looks up the rendezvous' address. Throws `InvalidArgument` when there is none of that name.
[[nodiscard]] Endpoint resolve(const Rendezvous& rendezvous);

/// Returns a socket that is bound to that address and the rendezvous' port. Throws
/// `InvalidArgument` when the port is in use or the address is not one of this machine.
[[nodiscard]] int bind_listener(const Endpoint& endpoint, const Rendezvous& rendezvous);

/// True when somebody on this machine listens on that TCP port. Looks only: does not connect, which
/// c10d's store would not like.
[[nodiscard]] bool is_listened_on(std::uint16_t port);

/// Returns the address of this machine from which packets to that one leave.
[[nodiscard]] std::string local_address_towards(const Endpoint& endpoint);

}  // namespace tessera::detail
