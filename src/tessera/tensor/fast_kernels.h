#pragma once

namespace tessera::detail {

/// Registers short cuts for the element-wise ops that programs call most.
///
/// When all DTensors of a call have the same layout, without Partial, the result has it too and
/// there is nothing to look up: the op runs on the local parts. Every other call takes the general
/// way. A short cut costs about a third of that.
void register_fast_kernels();

}  // namespace tessera::detail
