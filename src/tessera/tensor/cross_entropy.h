#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace tessera::detail {

/// `aten::cross_entropy_loss` for DTensors. Logits that are cut along the classes stay so: only what
/// there is per sample is reduced over the ranks. Samples may be cut as well.
[[nodiscard]] at::Tensor cross_entropy_loss(const at::Tensor& logits, const at::Tensor& target,
                                            const std::optional<at::Tensor>& weight,
                                            std::int64_t reduction, std::int64_t ignore_index,
                                            double label_smoothing);

/// While set on this rank, `cross_entropy_loss` throws for logits that are not cut along the classes.
[[nodiscard]] bool& requires_cut_classes();

}  // namespace tessera::detail
