#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "tessera/comm/collectives.h"
#include "tessera/comm/collectives_autograd.h"

// Scatter and gather.

namespace tessera {
namespace {

using detail::at_index;
using detail::Call;
using detail::Cut;
using detail::IssuedPtr;
using detail::Sizes;
using detail::sum;
using detail::Tensors;

at::Tensor scatter_with(const at::Tensor& x, const Cut& cut, std::int64_t root, const Group& group);

class Gather final : public detail::Collective {
 public:
  Gather(const Group& group, Cut cut, std::int64_t root)
      : group_(group), cut_(std::move(cut)), root_(root) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_gather(call, inputs.front(), cut_, root_);
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& /*inputs*/,
                                 const Tensors& /*outputs*/) const override {
    return {scatter_with(gradients.front(), cut_, root_, group_)};
  }

 private:
  Group group_;
  Cut cut_;
  std::int64_t root_;
};

/// Apart from the root, inputs may have any size along the cut dim.
class Scatter final : public detail::Collective {
 public:
  struct Parts {
    Cut cut;
    std::int64_t root;
    /// Of the input along the cut dim.
    std::int64_t input_size;
    /// Of the result, where it is not the piece's own.
    std::optional<Sizes> shape;
  };

  Scatter(const Group& group, Parts parts) : group_(group), parts_(std::move(parts)) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_scatter(call, inputs.front(), parts_.cut, parts_.root, parts_.shape);
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& /*inputs*/,
                                 const Tensors& /*outputs*/) const override {
    const Cut& cut = parts_.cut;
    const at::Tensor& gradient = gradients.front();
    const at::Tensor piece = parts_.shape ? gradient.reshape({-1}) : gradient;
    at::Tensor result = gather(piece, cut.dim, parts_.root, group_, {.sizes = cut.sizes});
    if (group_.index() != parts_.root && parts_.input_size > 0) {
      // Zeros behind nothing, which has a history.
      const Sizes shape = detail::resized(result.sizes(), cut.dim, parts_.input_size);
      result = at::cat({result, at::zeros(shape, result.options())}, cut.dim);
    }
    return {result};
  }

 private:
  Group group_;
  Parts parts_;
};

/// `float32[*,3] dim 0 sizes [2,1]`.
std::string describe(const at::Tensor& x, const Cut& cut) {
  std::string text = detail::describe(x, cut.dim) + " dim " + std::to_string(cut.dim);
  if (!cut.sizes.empty()) text += " sizes " + detail::bracketed(cut.sizes);
  return text;
}

at::Tensor scatter_call(Call& call, const at::Tensor& x, Scatter::Parts parts, bool async_op) {
  const Cut& cut = parts.cut;
  const auto arguments = [&] { return describe(x, cut) + " root " + std::to_string(parts.root); };
  const bool moves = call.is_valid() && sum(detail::piece_counts({x}, {cut})) > 0;
  call.agree(arguments, moves);
  return detail::perform(call, c10::make_intrusive<Scatter>(call.group(), std::move(parts)), x,
                         async_op);
}

at::Tensor scatter_with(const at::Tensor& x, const Cut& cut, std::int64_t root,
                        const Group& group) {
  Call call("scatter", "scatter", group);
  return scatter_call(call, x, {cut, root, x.size(cut.dim), {}}, /*async_op=*/false);
}

/// What the root of a scattered list tells the others.
struct PieceList {
  at::ScalarType type = at::kByte;
  c10::DeviceType device = c10::kCPU;
  bool requires_grad = false;
  std::vector<Sizes> shapes;

  PieceList() = default;
  explicit PieceList(const Tensors& pieces)
      : type(pieces.front().scalar_type()), device(pieces.front().device().type()) {
    for (const auto& piece : pieces) {
      shapes.push_back(piece.sizes().vec());
      requires_grad = requires_grad || piece.requires_grad();
    }
    requires_grad = requires_grad && c10::GradMode::is_enabled();
  }

  [[nodiscard]] Sizes to_numbers() const {
    Sizes numbers = {static_cast<std::int64_t>(type), static_cast<std::int64_t>(device),
                     requires_grad ? 1 : 0};
    for (const auto& shape : shapes) {
      numbers.push_back(static_cast<std::int64_t>(shape.size()));
      numbers.insert(numbers.end(), shape.begin(), shape.end());
    }
    return numbers;
  }

  static PieceList from_numbers(const std::int64_t* at, const std::int64_t* end) {
    PieceList list;
    list.type = static_cast<at::ScalarType>(*at++);
    list.device = static_cast<c10::DeviceType>(*at++);
    list.requires_grad = *at++ != 0;
    while (at != end) {
      const std::int64_t ndim = *at++;
      list.shapes.emplace_back(at, at + ndim);
      at += ndim;
    }
    return list;
  }

  [[nodiscard]] Sizes numels() const {
    Sizes numels;
    for (const auto& shape : shapes) numels.push_back(c10::multiply_integers(shape));
    return numels;
  }
};

bool require_pieces(Call& call, const Tensors& pieces, std::int64_t root) {
  if (!detail::require_member(call, root, "root")) return false;
  if (call.index() != root) {
    return call.require(pieces.empty(), pieces.size(),
                        " piece(s) given, but not on the root; only the root passes pieces");
  }
  if (!call.require(static_cast<std::int64_t>(pieces.size()) == call.size(), pieces.size(),
                    " piece(s) given for group ", call.group().name(), " of ", call.size(),
                    " member(s); give one per member")) {
    return false;
  }
  return std::all_of(pieces.begin(), pieces.end(), [&](const at::Tensor& piece) {
    return detail::require_tensor(call, piece, "a piece") &&
           call.require(piece.scalar_type() == pieces.front().scalar_type() &&
                            piece.device() == pieces.front().device(),
                        "pieces ", detail::describe(pieces.front()), " and ",
                        detail::describe(piece), " given; all must have the same dtype and device");
  });
}

/// Lets the root tell the others about its pieces.
PieceList share_pieces(Call& call, const Tensors& pieces, std::int64_t root) {
  const bool is_root = call.is_valid() && call.index() == root;
  const auto arguments = [&] { return concat("pieces root ", root); };
  Sizes own = is_root ? PieceList(pieces).to_numbers() : Sizes();
  const auto lengths = call.share(arguments, {static_cast<std::int64_t>(own.size())}, 1);
  const std::int64_t length = lengths[at_index(root)];
  own.resize(at_index(length));
  const auto all = call.share(arguments, own, length);
  const std::int64_t* begin = all.data() + root * length;
  return PieceList::from_numbers(begin, begin + length);
}

}  // namespace

at::Tensor scatter(const at::Tensor& x, std::int64_t dim, std::int64_t root, const Group& group,
                   const SplitOptions& options) {
  Call call("scatter", "scatter", group);
  Scatter::Parts parts{{dim, options.sizes}, root, 0, {}};
  Cut& cut = parts.cut;
  if (detail::require_tensor(call, x) && detail::require_dim(call, x.dim(), cut.dim) &&
      detail::require_member(call, root, "root")) {
    parts.input_size = x.size(cut.dim);
    if (cut.sizes.empty()) cut.sizes = detail::chunk_sizes(parts.input_size, group.size());
    detail::require_total(call, x, cut.dim, cut.sizes, "sizes");
  }
  return scatter_call(call, x, std::move(parts), options.async_op);
}

at::Tensor scatter(const std::vector<at::Tensor>& pieces, std::int64_t root, const Group& group,
                   const CollectiveOptions& options) {
  Call call("scatter", "scatter", group);
  require_pieces(call, pieces, root);
  const PieceList list = share_pieces(call, pieces, root);
  Scatter::Parts parts{{0, list.numels()}, root, 0, list.shapes[at_index(group.index())]};
  at::Tensor flat;
  if (group.index() == root) {
    Tensors flats;
    for (const auto& piece : pieces) flats.push_back(piece.reshape({-1}));
    flat = at::cat(flats);
    parts.input_size = flat.numel();
  } else {
    flat = at::empty({0}, at::TensorOptions().dtype(list.type).device(list.device));
    flat.set_requires_grad(list.requires_grad);
  }
  return scatter_call(call, flat, std::move(parts), options.async_op);
}

at::Tensor gather(const at::Tensor& x, std::int64_t dim, std::int64_t root, const Group& group,
                  const SplitOptions& options) {
  Call call("gather", "gather", group);
  const bool is_usable = detail::require_tensor(call, x);
  const at::Tensor in = is_usable && x.dim() == 0 ? x.reshape({1}) : x;
  Cut cut{dim, options.sizes};
  if (is_usable && detail::require_dim(call, in.dim(), cut.dim) &&
      detail::require_member(call, root, "root") && !cut.sizes.empty()) {
    detail::require_own_size(call, in, cut.dim, cut.sizes);
  }
  const auto arguments = [&] { return describe(in, cut) + " root " + std::to_string(root); };
  if (call.is_valid() && !cut.sizes.empty()) {
    call.agree(arguments, sum(detail::piece_counts({in}, {cut})) > 0);
  } else {
    cut.sizes = call.share(arguments, {call.is_valid() ? in.size(cut.dim) : 0}, 1);
  }
  return detail::perform(call, c10::make_intrusive<Gather>(group, std::move(cut), root), in,
                         options.async_op);
}

}  // namespace tessera
