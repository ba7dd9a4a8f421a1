#pragma once

namespace tessera::nn {

/// While alive, makes sure that cross entropies of DTensors on the calling rank are computed without
/// gathering the logits: `torch::nn::functional::cross_entropy` and `torch::nn::CrossEntropyLoss` throw
/// `InvalidArgument` for logits that are not cut along the classes, on a mesh of more than one rank.
///
///     const LossParallel guard;
///     const auto loss = torch::nn::functional::cross_entropy(logits, target);
///
/// The guard checks and nothing else. With or without it, the cross entropy of logits that are cut along
/// the classes communicates what there is per sample only: one all_reduce of the greatest logits and one
/// of two sums, a third with label smoothing, and nothing in the backward pass. Logits that are still to
/// be summed (`Partial`) are reduce-scattered along the classes. All options of libtorch's function work:
/// class weights, `ignore_index`, label smoothing, every reduction, targets that are probabilities,
/// samples that are cut over other mesh dims. Targets and weights may be DTensors, or plain tensors that
/// are equal on all ranks. The loss cannot be differentiated twice.
///
/// Guards nest.
class LossParallel {
 public:
  LossParallel();
  ~LossParallel();
  LossParallel(const LossParallel&) = delete;
  LossParallel& operator=(const LossParallel&) = delete;

 private:
  bool previous_;
};

}  // namespace tessera::nn
