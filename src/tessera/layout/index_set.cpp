#include "tessera/layout/index_set.h"

#include <algorithm>
#include <ostream>

#include "tessera/base/check.h"

namespace tessera {

IndexSet::IndexSet(Extent extent) { append(extent); }

void IndexSet::append(Extent run) {
  if (run.size == 0) return;
  TESSERA_CHECK(run.size > 0 && (runs_.empty() || run.begin >= runs_.back().end()),
                "IndexSet::append: run ", run, " given behind ", *this,
                "; runs are added in ascending order");
  if (!runs_.empty() && runs_.back().end() == run.begin) {
    runs_.back().size += run.size;
  } else {
    runs_.push_back(run);
  }
  size_ += run.size;
}

IndexSet IndexSet::slice(Extent positions) const {
  TESSERA_CHECK(positions.begin >= 0 && positions.begin <= size_ && positions.size >= 0 &&
                    positions.size <= size_ - positions.begin,
                "IndexSet::slice: ", positions.size, " positions from ", positions.begin,
                " on given; pass positions in [0, ", size_, ")");
  IndexSet result;
  std::int64_t passed = 0;
  for (const auto& run : runs_) {
    const std::int64_t begin = std::max(positions.begin, passed);
    const std::int64_t end = std::min(positions.end(), passed + run.size);
    if (begin < end) result.append({run.begin + begin - passed, end - begin});
    passed += run.size;
    if (passed >= positions.end()) break;
  }
  return result;
}

IndexSet IndexSet::intersect(const IndexSet& other) const {
  IndexSet result;
  auto mine = runs_.begin();
  auto theirs = other.runs_.begin();
  while (mine != runs_.end() && theirs != other.runs_.end()) {
    const std::int64_t begin = std::max(mine->begin, theirs->begin);
    const std::int64_t end = std::min(mine->end(), theirs->end());
    if (begin < end) result.append({begin, end - begin});
    if (mine->end() < theirs->end()) {
      ++mine;
    } else {
      ++theirs;
    }
  }
  return result;
}

std::ostream& operator<<(std::ostream& os, const IndexSet& set) {
  return os << (set.empty() ? "{}" : joined(set.runs(), "+"));
}

}  // namespace tessera
