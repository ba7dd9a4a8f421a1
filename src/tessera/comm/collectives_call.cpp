#include "tessera/comm/collectives_call.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "tessera/base/check.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/pending_tensor.h"

namespace tessera::detail {
namespace {

std::string dtype_name(at::ScalarType type) { return std::string(c10::getDtypeNames(type).first); }

/// Integers of whole bytes, with and without a sign.
bool is_integer(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/false) || type == at::kUInt16 ||
         type == at::kUInt32 || type == at::kUInt64;
}

/// The numbers that reductions are defined for: not quantised, not packed, not mere bits.
bool is_number(at::ScalarType type) {
  return is_integer(type) || type == at::kBool || at::isComplexType(type) ||
         (at::isFloatingType(type) && type != at::ScalarType::Float4_e2m1fn_x2 &&
          type != at::ScalarType::Float8_e8m0fnu);
}

bool require_reduction(Call& call, at::ScalarType type, ReduceOp op) {
  const auto name = dtype_name(type);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
      return true;
    case ReduceOp::avg:
      return call.require(at::isFloatingType(type) || at::isComplexType(type), "avg of ", name,
                          " given; an average needs a floating or complex dtype: convert first, or "
                          "use sum");
    case ReduceOp::min:
    case ReduceOp::max:
      return call.require(!at::isComplexType(type), op, " of ", name,
                          " given; complex numbers have no order: use sum, avg or product");
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return call.require(is_integer(type) || type == at::kBool, op, " of ", name,
                          " given; bitwise ops need an integer dtype or bool");
  }
  return true;
}

}  // namespace

Call::Call(const char* function, const char* name, const Group& group)
    : function_(function),
      name_(name),
      group_(group),
      world_(world_of(group)),
      use_(*world_, function),
      begin_(Clock::now()),
      is_compared_(group.size() > 1 && world_->options().check) {}

Transport& Call::transport() const { return connect(group_); }

void Call::throw_alone() const {
  if (!is_valid()) throw InvalidArgument(error_);
}

void Call::throw_if_invalid(std::int64_t record_length) {
  if (is_valid()) return;
  if (is_compared_) {
    try {
      const std::vector<std::int64_t> record(static_cast<std::size_t>(record_length), 0);
      (void)transport().check_records({name_, concat("invalid: ", error_)}, record);
    } catch (const CommError&) {
      std::throw_with_nested(InvalidArgument(error_));
    }
  }
  throw_alone();
}

void Call::compare(std::string arguments, bool moves) {
  if (moves) {
    transport().check({name_, std::move(arguments)});
  } else {
    (void)transport().check_records({name_, std::move(arguments)}, {});
  }
}

std::vector<std::int64_t> Call::exchange(std::string arguments,
                                         const std::vector<std::int64_t>& record) {
  return transport().check_records({name_, std::move(arguments)}, record);
}

void Call::disagree(const std::string& what, const std::string& own) {
  try {
    // No two ranks pass the same, so this fails in the engine, which thereby gives the group up.
    (void)transport().check_records({name_, concat(own, " as member ", index())}, {});
  } catch (const CommError&) {  // NOLINT(bugprone-empty-catch): what follows says it better.
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  const auto rank = group_.ranks()[static_cast<std::size_t>(index())];
  throw CommError(concat("the ranks do not agree: ", what), {rank, group_.name(), name_, elapsed});
}

std::string describe(const at::Tensor& x, std::int64_t open_dim) {
  std::string text = dtype_name(x.scalar_type());
  text += '[';
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (d > 0) text += ',';
    text += d == open_dim ? "*" : std::to_string(x.size(d));
  }
  text += ']';
  return text;
}

std::string bracketed(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(numbers[i]);
  }
  return text += ']';
}

bool require_tensor(Call& call, const at::Tensor& x, const char* what) {
  if (!call.require(x.defined(), "an undefined tensor given as ", what, "; pass a defined one")) {
    return false;
  }
  settle(x);
  return call.require(wrapped_meta(x) == nullptr, "a distributed tensor given as ", what,
                      "; pass its local part, or use redistribute") &&
         call.require(x.layout() == at::kStrided && !x.is_quantized(), what,
                      " is sparse or quantized; pass a strided tensor, e.g. by to_dense");
}

bool require_dim(Call& call, std::int64_t ndim, std::int64_t& dim) {
  if (!call.require(dim >= -ndim && dim < ndim, "dim ", dim, " given for a tensor of ", ndim,
                    " dim(s); it must be at least ", -ndim, " and less than ", ndim)) {
    return false;
  }
  if (dim < 0) dim += ndim;
  return true;
}

bool require_member(Call& call, std::int64_t member, const char* what) {
  return call.require(member >= 0 && member < call.size(), what, ' ', member, " given for group ",
                      call.group().name(), " of ", call.size(),
                      " member(s); members are numbered from 0 by their place in the group");
}

bool require_sizes(Call& call, const std::vector<std::int64_t>& sizes, const char* what) {
  return call.require(static_cast<std::int64_t>(sizes.size()) == call.size(), sizes.size(), ' ',
                      what, " given for group ", call.group().name(), " of ", call.size(),
                      " member(s); give one per member") &&
         call.require(std::all_of(sizes.begin(), sizes.end(), [](auto size) { return size >= 0; }),
                      what, ' ', bracketed(sizes), " given; none may be negative");
}

bool require_total(Call& call, const at::Tensor& x, std::int64_t dim,
                   const std::vector<std::int64_t>& sizes, const char* what) {
  return require_sizes(call, sizes, what) &&
         call.require(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == x.size(dim),
                      what, ' ', bracketed(sizes), " given for a tensor of ", x.size(dim),
                      " along dim ", dim, "; they must add up to that");
}

bool require_own_size(Call& call, const at::Tensor& x, std::int64_t dim,
                      const std::vector<std::int64_t>& sizes) {
  if (!require_sizes(call, sizes, "sizes")) return false;
  const std::int64_t stated = sizes[static_cast<std::size_t>(call.index())];
  return call.require(x.size(dim) == stated, "sizes ", bracketed(sizes), " given, ", stated,
                      " for member ", call.index(), ", but its x has ", x.size(dim), " along dim ",
                      dim);
}

bool require_reducible(Call& call, const at::Tensor& x, ReduceOp op) {
  const auto type = x.scalar_type();
  return call.require(is_number(type), op, " of ", dtype_name(type),
                      " given, which has no arithmetic; convert first") &&
         require_reduction(call, type, op);
}

}  // namespace tessera::detail
