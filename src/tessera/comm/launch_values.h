#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/comm/launch_environment.h"

namespace tessera::detail {

/// The most ranks that a launcher can be meant to have started.
inline constexpr std::int64_t kMostRanks = 1 << 24;
/// The most ranks that can be meant to be threads of one process.
inline constexpr std::int64_t kMostThreads = 4096;

// What follows reads one value. `what` introduces it in the message of the `InvalidArgument` that
// is thrown when it cannot be meant: `RANK=` or `--ranks `.

[[nodiscard]] std::int64_t read_integer(std::string_view what, std::string_view text,
                                        std::int64_t low, std::int64_t high);
[[nodiscard]] EngineKind read_engine(std::string_view what, std::string_view text);
/// Seconds, fractions too, rounded up to milliseconds.
[[nodiscard]] std::chrono::milliseconds read_timeout(std::string_view what, std::string_view text);
/// `0` or `1`.
[[nodiscard]] bool read_switch(std::string_view what, std::string_view text);

/// The first host of one of Slurm's compressed lists: `gpu007` of `gpu[007-009,012],login`.
[[nodiscard]] std::string read_first_host(std::string_view what, std::string_view list);

/// The variable's value; nothing when it is unset or empty.
[[nodiscard]] std::optional<std::string_view> find_variable(const Variables& variables,
                                                            std::string_view name);
[[nodiscard]] std::optional<std::int64_t> find_integer(const Variables& variables,
                                                       std::string_view name, std::int64_t low,
                                                       std::int64_t high);

}  // namespace tessera::detail
