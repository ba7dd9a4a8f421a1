#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/layout/placement.h"

namespace tessera::nn {

/// \file
/// How one module works in parallel along one mesh dim: how its parameters are placed, what its inputs
/// are taken for and brought to, and how its outputs are handed on. For `parallelize_module`.
///
/// Layouts are placements along that mesh dim; negative dims count from the end. Fields that are left
/// out have the value that their comment says, and with `Activations::distributed` mean: as it comes.
/// A plain input is taken to be this rank's part of a tensor placed as `input_layouts` says; a DTensor
/// knows how it is placed. `use_local_output` returns this rank's part as a plain tensor.

/// Cuts the columns of a layer, that is its output features: rows of a Linear's weight and its bias,
/// or columns of an Embedding's weight. Every rank computes some of the features.
struct ColwiseParallel {
  /// Replicate. The input is brought to Replicate.
  std::optional<Placement> input_layouts = {};
  /// Shard(-1).
  std::optional<Placement> output_layouts = {};
  /// True.
  std::optional<bool> use_local_output = {};
};

/// Cuts the rows of a layer, that is its input features: columns of a Linear's weight, or rows (the
/// vocabulary) of an Embedding's. Every rank computes a contribution to all features, and these are
/// summed.
struct RowwiseParallel {
  /// Shard(-1) for a Linear, whose input is brought to Shard(-1); Replicate for an Embedding.
  std::optional<Placement> input_layouts = {};
  /// Replicate, which is an all_reduce; Shard(1) is a reduce_scatter over the sequence.
  std::optional<Placement> output_layouts = {};
  /// True.
  std::optional<bool> use_local_output = {};
};

/// Replicates the parameters, and cuts inputs and outputs along the sequence: for norms, dropout and
/// other modules that treat every position alone. The input is taken for and brought to
/// Shard(sequence_dim).
struct SequenceParallel {
  std::int64_t sequence_dim = 1;
  bool use_local_output = false;
};

/// Brings what a module gets from `input_layouts` to `desired_input_layouts`: one entry per tensor
/// argument, `std::nullopt` for those to be left alone.
struct PrepareModuleInput {
  std::vector<std::optional<Placement>> input_layouts = {};
  std::vector<std::optional<Placement>> desired_input_layouts = {};
  /// Pass plain tensors to the module: this rank's parts in the desired layouts.
  bool use_local_output = false;
};

/// Brings what a module returns from `output_layouts` to `desired_output_layouts`, likewise.
struct PrepareModuleOutput {
  std::vector<std::optional<Placement>> output_layouts = {};
  std::vector<std::optional<Placement>> desired_output_layouts = {};
  bool use_local_output = true;
};

/// Both.
struct PrepareModuleInputOutput {
  PrepareModuleInput input = {};
  PrepareModuleOutput output = {};
};

using ParallelStyle =
    std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput,
                 PrepareModuleOutput, PrepareModuleInputOutput>;

/// `ColwiseParallel`, ...
[[nodiscard]] const char* style_name(const ParallelStyle& style);

}  // namespace tessera::nn
