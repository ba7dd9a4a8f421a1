#include "tessera/comm/c10d/listener.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Closes a socket unless it was released.
class Socket {
 public:
  Socket(int family, int type) : handle_(::socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (handle_ >= 0) close(handle_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int get() const { return handle_; }
  int release() { return std::exchange(handle_, -1); }

 private:
  int handle_;
};

/// Looks up a name, or reads an address in numbers; null when there is none.
Addresses look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const std::string service = concat(port);
  if (getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0) return nullptr;
  return Addresses(found);
}

std::string numeric(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

constexpr const char* kSetAddress =
    "set MASTER_ADDR to the name or address of rank 0's machine, alike on all ranks";

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, address, sizeof(ipv4));
    return ntohl(ipv4.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, address, sizeof(ipv6));
  return IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr) != 0;
}

}  // namespace

std::string address_text(const Rendezvous& rendezvous) {
  if (rendezvous.address_origin.empty()) return concat("MASTER_ADDR=", rendezvous.address);
  return concat("host ", rendezvous.address, " (", rendezvous.address_origin, ')');
}

std::string port_text(const Rendezvous& rendezvous) {
  if (rendezvous.port_origin.empty()) return concat("MASTER_PORT=", rendezvous.port);
  return concat("port ", rendezvous.port, " (", rendezvous.port_origin, ')');
}

Endpoint resolve(const Rendezvous& rendezvous) {
  const Addresses found = look_up(rendezvous.address, rendezvous.port, 0);
  TESSERA_CHECK(found != nullptr, "launch: ", address_text(rendezvous),
                " cannot be used: no machine of that name is known; ", kSetAddress);
  // Names often have an address of either version; the older one is listened on more often.
  const addrinfo* best = found.get();
  for (const addrinfo* each = best; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) {
      best = each;
      break;
    }
  }
  return {numeric(best->ai_addr, best->ai_addrlen), is_loopback(best->ai_addr)};
}

int bind_listener(const Endpoint& endpoint, const Rendezvous& rendezvous) {
  const Addresses address = look_up(endpoint.host, rendezvous.port, AI_NUMERICHOST);
  TESSERA_INTERNAL_CHECK(address != nullptr, "address ", endpoint.host, " cannot be read");
  Socket socket(address->ai_family, SOCK_STREAM);
  // Allows the port to be used again soon after a run; not by two at a time.
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0) return socket.release();
  const int error = errno;
  TESSERA_CHECK(error != EADDRINUSE, "launch: ", port_text(rendezvous),
                " cannot be used: another program uses that port of ", endpoint.host,
                "; set MASTER_PORT to a free one, alike on all ranks");
  TESSERA_CHECK(error != EADDRNOTAVAIL, "launch: ", address_text(rendezvous),
                " cannot be used: ", endpoint.host,
                " is no address of the machine that rank 0 runs on; ", kSetAddress);
  throw InvalidArgument(concat("launch: cannot listen on ", address_text(rendezvous), ", ",
                               port_text(rendezvous), ": ", std::strerror(error)));
}

bool is_listened_on(std::uint16_t port) {
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::string number;
      std::string local;
      std::string remote;
      std::string state;
      fields >> number >> local >> remote >> state;
      const auto colon = local.rfind(':');
      if (state == "0A" && colon != std::string::npos &&
          std::stoul(local.substr(colon + 1), nullptr, 16) == port) {
        return true;
      }
    }
  }
  return false;
}

std::string local_address_towards(const Endpoint& endpoint) {
  constexpr std::uint16_t kAnyPort = 9;
  const Addresses address = look_up(endpoint.host, kAnyPort, AI_NUMERICHOST);
  TESSERA_INTERNAL_CHECK(address != nullptr, "address ", endpoint.host, " cannot be read");
  // Connecting a datagram socket sends nothing; it only chooses the route.
  const Socket socket(address->ai_family, SOCK_DGRAM);
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  const bool routed = connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0 &&
                      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0;
  TESSERA_CHECK(routed, "launch: no route to ", endpoint.host, ": ", std::strerror(errno));
  return numeric(reinterpret_cast<sockaddr*>(&own), length);
}

}  // namespace tessera::detail
