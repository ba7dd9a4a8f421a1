#pragma once

/// \file
/// Everything but `nn/hooked.h`, which needs libtorch's `nn` headers and takes as long to compile as
/// they do. Each layer also has narrow headers of its own, which compile faster.

// IWYU pragma: begin_exports
#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/group.h"
#include "tessera/comm/log.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/world.h"
#include "tessera/layout/layout.h"
#include "tessera/layout/picture.h"
#include "tessera/layout/placement.h"
#include "tessera/nn/clip_grad.h"
#include "tessera/nn/distribute_module.h"
#include "tessera/nn/hooks.h"
#include "tessera/nn/loss_parallel.h"
#include "tessera/nn/optimizer_state.h"
#include "tessera/nn/parallel_style.h"
#include "tessera/nn/parallelize_module.h"
#include "tessera/nn/state.h"
#include "tessera/plan/batch_plan.h"
#include "tessera/plan/redistribute_plan.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"
#include "tessera/tensor/in_place.h"
#include "tessera/tensor/local_map.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/strict_mode.h"
// IWYU pragma: end_exports
