#include "tessera/nn/loss_parallel.h"

#include <utility>

#include "tessera/tensor/cross_entropy.h"

namespace tessera::nn {

LossParallel::LossParallel()
    : previous_(std::exchange(tessera::detail::requires_cut_classes(), true)) {}

LossParallel::~LossParallel() { tessera::detail::requires_cut_classes() = previous_; }

}  // namespace tessera::nn
