#include "comm/process/mismatch_calls.h"

#include <map>

#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "tessera/comm/comm_error.h"

namespace tessera::test {

using Sizes = std::vector<std::int64_t>;

void perform(const Call& call, const Group& group) {
  const at::Tensor x = at::ones(call.shape, call.dtype);
  const std::vector<at::Tensor> two = {x, x};
  const Sizes even(static_cast<std::size_t>(group.size()), kRows / group.size());
  const std::map<std::string, std::function<void()>> all = {
      {"all_reduce", [&] { (void)all_reduce(x, call.reduce, group); }},
      {"all_reduce_coalesced", [&] { (void)all_reduce(two, call.reduce, group); }},
      {"all_gather", [&] { (void)all_gather(x, call.dim, group, {.sizes = call.sizes}); }},
      {"all_gather_coalesced", [&] { (void)all_gather(two, call.dim, group); }},
      {"reduce_scatter",
       [&] { (void)reduce_scatter(x, call.dim, call.reduce, group, {.sizes = call.sizes}); }},
      {"reduce_scatter_coalesced",
       [&] { (void)reduce_scatter(two, call.dim, call.reduce, group); }},
      {"all_to_all",
       [&] { (void)all_to_all(x, call.sizes.empty() ? even : call.sizes, even, group); }},
      {"broadcast", [&] { (void)broadcast(x, call.root, group); }},
      {"scatter_pieces",
       [&] {
         const std::vector<at::Tensor> pieces(static_cast<std::size_t>(group.size()), x);
         (void)scatter(group.index() == call.root ? pieces : std::vector<at::Tensor>(), call.root,
                       group);
       }},
      {"scatter", [&] { (void)scatter(x, call.dim, call.root, group, {.sizes = call.sizes}); }},
      {"gather", [&] { (void)gather(x, call.dim, call.root, group, {.sizes = call.sizes}); }},
      {"permute", [&] { (void)permute(x, call.destinations, group); }},
      {"barrier", [&] { barrier(group); }},
      {"all_gather_object", [&] { (void)all_gather_object("bytes", group); }},
  };
  all.at(call.collective)();
}

std::string c10d_name(const std::string& collective) {
  static const std::map<std::string, std::string> kOthers = {
      {"all_gather", "all_gather_into_tensor"},
      {"all_gather_coalesced", "all_gather_into_tensor_coalesced"},
      {"reduce_scatter", "reduce_scatter_tensor"},
      {"reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced"},
      {"all_to_all", "all_to_all_single"},
      {"permute", "all_to_all_single"},
      {"scatter_pieces", "scatter"},
  };
  const auto found = kOthers.find(collective);
  return found == kOthers.end() ? collective : found->second;
}

Call usual_call(const std::string& collective, std::int64_t members, Random& random) {
  Call call{.collective = collective};
  call.shape[1] = random.between(1, 5);
  call.root = random.between(0, members - 1);
  for (std::int64_t i = 0; i < members; ++i) call.destinations.push_back((i + 1) % members);
  return call;
}

void perform(const Call& call, const Message& message, const Group& group) {
  const at::Tensor x = at::ones(call.shape, call.dtype);
  if (message.is_send) {
    send(x, message.peer, group, message.tag);
  } else {
    (void)recv(x, message.peer, group, message.tag);
  }
}

std::string comm_error_of(const std::function<void()>& call, const Group& group) {
  try {
    call();
    ADD_FAILURE() << "the mismatch was not found";
  } catch (const CommError& error) {
    EXPECT_EQ(error.group(), group.name());
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "something else was thrown: " << error.what();
  }
  return "";
}

}  // namespace tessera::test
