#pragma once

#include "tessera/comm/transport.h"
#include "tessera/comm/world.h"

namespace tessera::test {

// What every transport must do, for all members of a group to call together: each compares what it
// got with what follows from everybody's inputs, by expectations of GoogleTest.

/// Every operation that moves data, with parts of equal, different and no sizes, for many dtypes.
void check_moves(const Group& group);
/// Both reductions with every op and dtype that goes with it, NaN included.
void check_reductions(const Group& group);
/// Messages between all pairs, compared and not, several under way at a time.
void check_messages(const Group& group);
/// Several operations under way at a time, waited for in another order.
void check_async(const Group& group);
/// Records of all lengths.
void check_records(const Group& group);

}  // namespace tessera::test
