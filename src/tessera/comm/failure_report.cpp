#include "tessera/comm/failure_report.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tessera/base/concat.h"
#include "tessera/base/json_writer.h"
#include "tessera/comm/comm_error.h"

namespace tessera::detail {
namespace {

bool is_comm_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// An exception and those nested in it, the outermost first. A rank with wrong arguments tells the others,
/// who fail, and throws around that: what the others were told is no cause, and is left out.
std::vector<std::exception_ptr> causes_of(std::exception_ptr error) {
  std::vector<std::exception_ptr> causes;
  while (error != nullptr) {
    causes.push_back(std::exchange(error, nullptr));
    try {
      std::rethrow_exception(causes.back());
    } catch (const std::exception& known) {
      const auto* nested = dynamic_cast<const std::nested_exception*>(&known);
      if (nested == nullptr || nested->nested_ptr() == nullptr) continue;
      const bool is_own_mistake = dynamic_cast<const InvalidArgument*>(&known) != nullptr;
      if (!is_own_mistake || !is_comm_error(nested->nested_ptr())) error = nested->nested_ptr();
    } catch (...) {  // NOLINT(bugprone-empty-catch): nothing is nested in it.
    }
  }
  return causes;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

/// True when the rank failed in a communication, so most likely because another one did.
bool is_consequence(const std::exception_ptr& error) {
  const auto causes = causes_of(error);
  return std::any_of(causes.begin(), causes.end(), is_comm_error);
}

/// The head, up to `message`, is what tools/run_failure.cpp reads; the rest is torchrun's, which shows
/// the message with the earliest timestamp as the root cause. It compares whole seconds, so a rank that
/// fails because of another must be a second behind it.
std::string report_json(const std::string& text, bool consequence) {
  using namespace std::chrono;
  const nanoseconds now = system_clock::now().time_since_epoch();
  const seconds shown = duration_cast<seconds>(now) + seconds(consequence ? 1 : 0);
  JsonWriter json;
  json.begin_object();
  json.key("tessera").begin_object();
  json.member("time_ns", std::int64_t{now.count()}).member("consequence", consequence).end_object();
  json.key("message").begin_object().member("message", text);
  json.key("extraInfo").begin_object().member("timestamp", concat(shown.count()));
  return json.end_object().end_object().end_object().text();
}

}  // namespace

std::string failure_text(const std::exception_ptr& error) {
  std::vector<std::string> texts;
  for (const auto& cause : causes_of(error)) texts.push_back(text_of(cause));
  std::string text = texts.front();
  for (std::size_t i = 1; i < texts.size(); ++i) {
    const bool says_more = texts[i - 1].find(texts[i]) == std::string::npos;
    if (says_more) text += "\n  caused by: " + texts[i];
  }
  return text;
}

void report_failure(const std::string& program, const std::string& text,
                    const std::exception_ptr& error) {
  // In one piece, so that several ranks' do not mix.
  const std::string line = concat(program, ": ", text, '\n');
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  std::ofstream(path) << report_json(text, is_consequence(error)) << '\n';
}

}  // namespace tessera::detail
