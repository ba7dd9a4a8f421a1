#pragma once

#include <vector>

#include "tensor/op_case.h"

namespace tessera::test {

// Tables that other tests use as well; each in the file of that name.

[[nodiscard]] const std::vector<OpEntry>& pointwise_table();
[[nodiscard]] const std::vector<OpEntry>& unary_table();
[[nodiscard]] const std::vector<OpEntry>& reduction_table();
[[nodiscard]] const std::vector<OpEntry>& scan_table();
[[nodiscard]] const std::vector<OpEntry>& matmul_table();
[[nodiscard]] const std::vector<OpEntry>& view_table();
[[nodiscard]] const std::vector<OpEntry>& join_table();
[[nodiscard]] const std::vector<OpEntry>& index_table();
[[nodiscard]] const std::vector<OpEntry>& embedding_table();
[[nodiscard]] const std::vector<OpEntry>& norm_table();
[[nodiscard]] const std::vector<OpEntry>& attention_table();
[[nodiscard]] const std::vector<OpEntry>& convolution_table();
[[nodiscard]] const std::vector<OpEntry>& pool_table();
[[nodiscard]] const std::vector<OpEntry>& loss_table();
[[nodiscard]] const std::vector<OpEntry>& list_table();
[[nodiscard]] const std::vector<OpEntry>& random_table();

}  // namespace tessera::test
