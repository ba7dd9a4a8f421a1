#!/usr/bin/env bash
# includes_test.sh WORK_DIR: `./dev lint includes` catches each kind of wrong include.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

work="$1/includes"

# plant FILE INCLUDE: an otherwise clean tree in which FILE's third line is that include.
plant() {
  rm -rf -- "$work"
  mkdir -p "$work"/{include,src}/tessera/{base,layout,plan,comm,tensor,nn,sharded}
  for layer in base layout plan comm tensor nn sharded; do
    printf '#pragma once\n' >"$work/include/tessera/$layer/known.h"
  done
  printf '#pragma once\n' >"$work/src/tessera/base/private.h"
  printf '#pragma once\n\n#include %s\n' "$2" >"$work/$1"
}

accepts() {
  plant "$1" "$2"
  expect_pass python3 "$here/../../tools/lint/check_includes.py" "$work"
}

# refuses FILE INCLUDE WHY: the check names the file, the line and the reason.
refuses() {
  plant "$1" "$2"
  expect_fail 1 python3 "$here/../../tools/lint/check_includes.py" "$work"
  expect_output "$1:3: $3"
}

# The direction of the layers.
accepts include/tessera/layout/a.h '"tessera/base/known.h"'
refuses include/tessera/base/a.h '"tessera/layout/known.h"' \
  "layer base may not include layer layout; it may include: base"
accepts src/tessera/plan/a.cpp '"tessera/layout/known.h"'
refuses src/tessera/layout/a.cpp '"tessera/plan/known.h"' "layer layout may not include layer plan"
accepts src/tessera/comm/a.cpp '"tessera/plan/known.h"'
refuses src/tessera/plan/a.cpp '"tessera/comm/known.h"' "layer plan may not include layer comm"
accepts src/tessera/tensor/a.cpp '"tessera/comm/known.h"'
refuses src/tessera/comm/a.cpp '<tessera/tensor/known.h>' "layer comm may not include layer tensor"
accepts src/tessera/nn/a.cpp '"tessera/tensor/known.h"'
accepts src/tessera/sharded/a.cpp '"tessera/nn/known.h"'
refuses src/tessera/nn/a.cpp '"tessera/sharded/known.h"' "layer nn may not include layer sharded"
accepts include/tessera/tessera.h '"tessera/nn/known.h"'

# The core is std only.
accepts src/tessera/plan/a.cpp '<unordered_map>'
refuses src/tessera/base/a.cpp '<c10/util/Exception.h>' "layer base may include the standard library"
refuses include/tessera/layout/a.h '<ATen/core/Tensor.h>' "layer layout may include the standard"
refuses src/tessera/plan/a.cpp '<torch/torch.h>' "layer plan may include the standard library only"
refuses src/tessera/plan/a.cpp '<nlohmann/json.hpp>' "layer plan may include the standard library"

# Heavy headers stay in sources.
accepts include/tessera/tensor/a.h '<ATen/core/Tensor.h>'
for heavy in torch/torch.h ATen/ATen.h torch/library.h torch/csrc/distributed/c10d/Store.hpp; do
  accepts src/tessera/comm/a.cpp "<$heavy>"
  refuses include/tessera/comm/a.h "<$heavy>" "<$heavy> is too heavy for a public header"
done
accepts include/tessera/nn/a.h '<torch/nn/module.h>'
refuses include/tessera/tensor/a.h '<torch/nn/pimpl.h>' "only public headers of nn may include"
refuses include/tessera/tensor/a.h '<torch/nn/module.h>' "only public headers of nn may include"

# Private headers stay private, and paths start at tessera/.
accepts src/tessera/base/a.cpp '"tessera/base/private.h"'
refuses include/tessera/base/a.h '"tessera/base/private.h"' \
  '"tessera/base/private.h" is not a public header'
refuses src/tessera/base/a.cpp '"private.h"' '"private.h" is not a path from tessera/'

plant include/tessera/base/a.h '<vector>'
sed -i 1d "$work/include/tessera/base/a.h"
expect_fail 1 python3 "$here/../../tools/lint/check_includes.py" "$work"
expect_output "include/tessera/base/a.h:1: no \`#pragma once\`"
