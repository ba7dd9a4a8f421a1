#include "tessera/nn/gradient_sync.h"

#include <memory>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/nn/bucket_move.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/places_gradient.h"

namespace tessera::nn {
namespace {

thread_local bool t_no_sync = false;

/// The gradients of one backward pass that are collected or on their way. Belongs to one rank: its
/// backward passes run on the rank's own thread.
class Collector {
 public:
  explicit Collector(const GradientSyncOptions& options) : options_(options) {}

  /// Called when the gradient of a parameter is complete.
  static void take(const std::shared_ptr<Collector>& self, const at::Tensor& parameter) {
    if (NoGradientSync::is_enabled()) return;
    const at::Tensor& gradient = parameter.grad();
    const auto* own = tessera::detail::dtensor_meta(gradient);
    const auto* wanted = tessera::detail::dtensor_meta(parameter);
    if (own == nullptr || wanted == nullptr || gradient.requires_grad()) return;
    if (own->layout() == wanted->layout() || !(own->mesh() == wanted->mesh())) return;
    self->begin_pass(self);
    // Of the first rank, which holds the most: all ranks must send at the same time.
    const std::int64_t bytes =
        own->layout().local_numel(0) * static_cast<std::int64_t>(gradient.element_size());
    const std::int64_t limit = self->options_.bucket_bytes;
    // A large gradient does not make a large bucket of those before it: a bucket is packed, so it
    // takes its memory twice. A bias may go with its weight.
    if (self->bytes_ > 0 && self->bytes_ + bytes - limit > limit / 4) self->send();
    self->collected_.push_back(parameter);
    self->bytes_ += bytes;
    if (self->bytes_ >= limit) self->send();
  }

 private:
  /// Asks libtorch to be called when the pass ends. A pass that threw left its gradients here.
  void begin_pass(const std::shared_ptr<Collector>& self) {
    const int pass = torch::autograd::get_current_graph_task_id();
    if (pass == pass_) return;
    collected_.clear();
    bytes_ = 0;
    pass_ = pass;
    torch::autograd::Engine::get_default_engine().queue_callback([self] { self->end_pass(); });
  }

  void end_pass() {
    if (!collected_.empty()) send();
    settle();
    pass_ = kNoPass;
  }

  /// Starts to move what was collected. The gradients as they came are let go at once; one bucket
  /// at a time is on its way, so that they do not pile up.
  void send() {
    settle();
    const tessera::detail::CauseScope cause("gradients");
    std::vector<Layout> targets;
    for (const auto& parameter : collected_) {
      on_their_way_.push_back(parameter.grad());
      targets.push_back(tessera::detail::dtensor_meta(parameter)->layout());
    }
    on_their_way_ = detail::move_together(on_their_way_, targets);
    for (std::size_t i = 0; i < collected_.size(); ++i) {
      collected_[i].mutable_grad() = on_their_way_[i];
    }
    collected_.clear();
    bytes_ = 0;
  }

  void settle() {
    for (const auto& gradient : on_their_way_)
      (void)tessera::detail::dtensor_meta(gradient)->local();
    on_their_way_.clear();
  }

  static constexpr int kNoPass = -1;

  GradientSyncOptions options_;
  std::vector<at::Tensor> collected_;
  std::int64_t bytes_ = 0;
  std::vector<at::Tensor> on_their_way_;
  int pass_ = kNoPass;
};

class Hook final : public tessera::detail::PlacesGradient {
 public:
  explicit Hook(std::shared_ptr<Collector> collector) : collector_(std::move(collector)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    Collector::take(collector_, parameter);
  }

 private:
  std::shared_ptr<Collector> collector_;
};

}  // namespace

void sync_gradients(const std::vector<at::Tensor>& parameters, const GradientSyncOptions& options) {
  TESSERA_CHECK(options.bucket_bytes >= 1, "sync_gradients: bucket_bytes ", options.bucket_bytes,
                " given; it must be at least 1");
  for (const auto& parameter : parameters) {
    TESSERA_CHECK(
        parameter.defined() && parameter.is_leaf(),
        "sync_gradients: an undefined tensor, or one with history, given; pass parameters");
  }
  const auto collector = std::make_shared<Collector>(options);
  for (const auto& parameter : parameters) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(collector));
  }
}

NoGradientSync::NoGradientSync() : previous_(std::exchange(t_no_sync, true)) {}
NoGradientSync::~NoGradientSync() { t_no_sync = previous_; }
bool NoGradientSync::is_enabled() { return t_no_sync; }

}  // namespace tessera::nn
