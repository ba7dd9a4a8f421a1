#include "tessera/tensor/copied_view.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera::detail {
namespace {

Layout replicated(const DTensorMeta& meta) {
  return Layout(meta.layout().mesh(), Placements(meta.layout().placements().size(), Replicate()),
                meta.layout().shape());
}

at::Tensor whole(const DTensorMeta& meta) {
  return redistribute_local(meta.local(), meta.layout(), replicated(meta), meta.mesh().world());
}

void set_whole(const DTensorMeta& meta, const at::Tensor& values) {
  meta.local().copy_(redistribute_local(values.contiguous(), replicated(meta), meta.layout(),
                                        meta.mesh().world()));
}

/// Memory in which the whole tensor that is viewed lies as it says it does.
class Unfolded {
 public:
  explicit Unfolded(const CopiedView& view)
      : view_(view),
        start_(std::min(view.base_geometry.offset, view.own_geometry.offset)),
        memory_(at::empty({std::max(end(view.base_geometry), end(view.own_geometry)) - start_},
                          view.base->local().options())) {
    base().copy_(whole(*view.base));
  }

  [[nodiscard]] at::Tensor base() const { return as(view_.base_geometry); }
  [[nodiscard]] at::Tensor own() const { return as(view_.own_geometry); }

 private:
  static std::int64_t end(const Geometry& geometry) {
    std::int64_t last = geometry.offset;
    for (std::size_t i = 0; i < geometry.sizes.size(); ++i) {
      if (geometry.sizes[i] == 0) return geometry.offset;
      last += (geometry.sizes[i] - 1) * geometry.strides[i];
    }
    return last + 1;
  }
  [[nodiscard]] at::Tensor as(const Geometry& geometry) const {
    return memory_.as_strided(geometry.sizes, geometry.strides, geometry.offset - start_);
  }

  const CopiedView& view_;
  std::int64_t start_;
  at::Tensor memory_;
};

/// Whether several elements share one place in memory, as in what was expanded.
bool overlaps(const at::Tensor& local) {
  for (std::int64_t dim = 0; dim < local.dim(); ++dim) {
    if (local.stride(dim) == 0 && local.size(dim) > 1) return true;
  }
  return false;
}

void refresh_from(DTensorMeta& meta, const CopiedView& view) {
  const CauseScope cause("view that had to move");
  switch (view.kind) {
    case CopiedView::Kind::alias:
      return;
    case CopiedView::Kind::reordered:
      meta.local().copy_(view.base->local().reshape(meta.local().sizes()));
      return;
    case CopiedView::Kind::moved:
      if (overlaps(meta.local())) meta.replace_local(at::empty_like(meta.local()).contiguous());
      set_whole(meta, Unfolded(view).own());
      return;
    case CopiedView::Kind::unknown:
      TESSERA_CHECK(false,
                    "a view whose making had to move data is used after the tensor that it views "
                    "was written to, which it does not show; take the view again after the write");
  }
}

void refresh(DTensorMeta& meta) {
  CopiedView* view = meta.copied_view();
  if (view == nullptr) return;
  refresh(*view->base);
  // Tensors of inference mode do not count writes: their values are taken anew at every use.
  const bool is_counted = view->writes.enabled();
  const std::uint32_t writes = is_counted ? view->writes.current_version() : 0;
  if (is_counted && writes == view->seen) return;
  if (meta.is_inside()) refresh_from(meta, *view);
  view->seen = writes;
}

void carry(const DTensorMeta& meta, const CopiedView& view) {
  const CauseScope cause("write to a view that had to move");
  switch (view.kind) {
    case CopiedView::Kind::alias:
      return;
    case CopiedView::Kind::reordered:
      view.base->local().copy_(meta.local().reshape(view.base->local().sizes()));
      return;
    case CopiedView::Kind::moved: {
      const Unfolded unfolded(view);
      unfolded.own().copy_(whole(meta));
      set_whole(*view.base, unfolded.base());
      return;
    }
    case CopiedView::Kind::unknown:
      return;
  }
}

}  // namespace

Geometry geometry_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()};
}

void bring_up_to_date(const at::Tensor& tensor) {
  auto* meta = dtensor_meta(tensor);
  if (meta == nullptr || meta->copied_view() == nullptr) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  refresh(*meta);
}

void check_writable(const at::Tensor& tensor, const std::string& op) {
  for (auto* meta = dtensor_meta(tensor); meta != nullptr && meta->copied_view() != nullptr;
       meta = meta->copied_view()->base.get()) {
    TESSERA_CHECK(meta->copied_view()->kind != CopiedView::Kind::unknown, op,
                  ": writes to a view whose making had to move data, so that the write would not "
                  "reach the tensor it views; write to that tensor itself, or redistribute it "
                  "before taking the view");
  }
}

void write_through(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (auto* meta = dtensor_meta(tensor); meta != nullptr && meta->copied_view() != nullptr;
       meta = meta->copied_view()->base.get()) {
    if (meta->is_inside()) carry(*meta, *meta->copied_view());
  }
}

}  // namespace tessera::detail
