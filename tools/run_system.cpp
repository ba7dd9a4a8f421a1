#include "run_system.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tessera/base/concat.h"
#include "tessera/base/error.h"

namespace tessera::tools {

std::string system_text(const std::string& what, int error) {
  return concat(what, ": ", std::generic_category().message(error));
}

void check_system(bool failed, const char* what) {
  if (failed) throw Error(system_text(what, errno));
}

std::pair<Descriptor, Descriptor> make_pipe() {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC) != 0, "pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

HeldPort::HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  check_system(!socket_.is_open(), "socket");
  // With this, rank 0 may already take the port while it is still held.
  const int on = 1;
  check_system(::setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0,
               "SO_REUSEADDR");
  // Free on every address, not only on the one of loopback: a rank may be a program of others.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  check_system(::bind(socket_.number(), generic, sizeof address) != 0, "bind");
  socklen_t length = sizeof address;
  check_system(::getsockname(socket_.number(), generic, &length) != 0, "getsockname");
  number_ = ntohs(address.sin_port);
}

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "tessera_run.XXXXXX").string()) {
  check_system(::mkdtemp(path_.data()) == nullptr, path_.c_str());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tessera::tools
