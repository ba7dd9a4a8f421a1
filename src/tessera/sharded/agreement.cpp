#include "tessera/sharded/agreement.h"

#include <exception>

#include <c10/util/Exception.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/bytes.h"

namespace tessera::sharded::detail {
namespace {

/// What one member tells the others.
struct Record {
  std::string function;
  std::string error;
  std::vector<std::string> values;
  std::string bytes;
};

Record read(const std::string& bytes, const char* function) {
  ByteReader reader(bytes, function);
  Record record;
  record.function = reader.text();
  record.error = reader.text();
  for (std::int64_t left = reader.count(1); left > 0; --left) {
    record.values.push_back(reader.text());
  }
  record.bytes = reader.text();
  return record;
}

}  // namespace

void Agreement::remember(const std::exception& error) {
  if (!is_valid()) return;
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  error_ = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  if (error_.empty()) error_ = concat(function_, ": an exception without a text");
  thrown_ = std::current_exception();
}

void Agreement::throw_own() const {
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  TESSERA_CHECK(is_valid(), error_);
}

void Agreement::meet() {
  if (group_.size() > 1 && group_.world().options().check) {
    (void)exchange({});
  } else {
    throw_own();
  }
}

std::vector<std::string> Agreement::share(const std::string& bytes) {
  if (group_.size() > 1) return exchange(bytes);
  throw_own();
  return {bytes};
}

std::vector<std::string> Agreement::exchange(const std::string& bytes) {
  ByteWriter writer;
  writer.text(function_).text(error_).number(std::ssize(fields_));
  for (const auto& [name, value] : fields_) writer.text(value);
  writer.text(bytes);
  std::vector<std::string> all;
  {
    const tessera::detail::RecordingPause pause;
    all = all_gather_object(writer.take(), group_);
  }
  throw_own();
  std::vector<Record> records;
  records.reserve(all.size());
  for (const auto& one : all) records.push_back(read(one, function_.c_str()));
  for (std::size_t i = 0; i < records.size(); ++i) {
    TESSERA_CHECK(records[i].function == function_, function_, ": rank ", group_.ranks()[i],
                  " called ", records[i].function,
                  " instead; all members of a group must make the same calls in the same order");
    TESSERA_CHECK(records[i].error.empty(), function_, ": rank ", group_.ranks()[i],
                  " was called with something wrong: ", records[i].error);
  }
  std::vector<std::string> shared;
  for (std::size_t i = 0; i < records.size(); ++i) {
    TESSERA_INTERNAL_CHECK(records[i].values.size() == fields_.size(), "fields of rank ",
                           group_.ranks()[i]);
    shared.push_back(std::move(records[i].bytes));
  }
  for (std::size_t field = 0; field < fields_.size(); ++field) {
    std::vector<std::string> values;
    values.reserve(records.size());
    for (auto& record : records) values.push_back(std::move(record.values[field]));
    compare(fields_[field].first, values);
  }
  return shared;
}

void Agreement::compare(const std::string& name, const std::vector<std::string>& values) const {
  std::size_t first = 0;
  while (first < values.size() && values[first].empty()) ++first;
  for (std::size_t i = first; i < values.size(); ++i) {
    if (values[i].empty() || values[i] == values[first]) continue;
    const auto one = concat(name, '=', values[first]);
    const auto other = concat(name, '=', values[i]);
    TESSERA_CHECK(wording_ == Wording::with_each_other, function_, ": ShardedTensor ", name,
                  " property does not match from different ranks! Found ", one,
                  " on rank:", group_.ranks()[first], ", and ", other,
                  " on rank:", group_.ranks()[i]);
    TESSERA_CHECK(false, function_, ": ", one, " on rank: ", group_.ranks()[first],
                  " does not match with ", other, " on rank: ", group_.ranks()[i]);
  }
}

}  // namespace tessera::sharded::detail
