// Starts a program several times on this host, each time as one rank.

#include <cerrno>
#include <exception>
#include <iostream>

#include "run_arguments.h"
#include "run_process.h"
#include "run_supervisor.h"
#include "run_system.h"
#include "tessera/base/error.h"

int main(int argc, char** argv) {
  try {
    const auto arguments = tessera::tools::parse_run_arguments(argc, argv);
    if (!arguments.help) return tessera::tools::run_ranks_as_processes(arguments);
    std::cout << tessera::tools::run_usage() << std::flush;
    return std::cout.good() ? 0 : 1;
  } catch (const tessera::tools::CannotExecute& failure) {
    std::cerr << "tessera_run: cannot run "
              << tessera::tools::system_text(failure.program, failure.error) << '\n';
    return failure.error == ENOENT ? 127 : 126;
  } catch (const tessera::InvalidArgument& error) {
    std::cerr << "tessera_run: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "tessera_run: " << error.what() << '\n';
    return 1;
  }
}
