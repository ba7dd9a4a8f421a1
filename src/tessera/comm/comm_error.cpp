#include "tessera/comm/comm_error.h"

#include "tessera/base/concat.h"

namespace tessera {

CommError::CommError(const std::string& what, Where where)
    : Error(concat(where.operation, " on group ", where.group, ", rank ", where.rank, ", after ",
                   where.elapsed.count(), " ms: ", what)),
      where_(std::move(where)) {}

}  // namespace tessera
