#include "tessera/comm/large_memory.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "tessera/layout/layout.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kMegabyte = std::int64_t{1} << 20;
constexpr auto kKeep = static_cast<std::size_t>(64 * kMegabyte);

/// Begins with nothing kept, and a limit of 64 MB.
class LargeMemoryTest : public ::testing::Test {
 protected:
  LargeMemoryTest() : before_(detail::set_kept_bytes_limit(0)) {
    detail::set_kept_bytes_limit(kKeep);
  }
  ~LargeMemoryTest() override {
    detail::set_kept_bytes_limit(0);
    detail::set_kept_bytes_limit(before_);
  }

  static at::Tensor bytes(std::int64_t count) { return detail::new_tensor({count}, at::kByte); }

 private:
  std::size_t before_;
};

TEST_F(LargeMemoryTest, TensorsAreAsIfEmptyHadMadeThem) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kComplexDouble}) {
    for (const Shape& sizes :
         {Shape{}, Shape{0, 3}, Shape{5, 7}, Shape{1025, 2048}, Shape{3, 5, 70001}}) {
      const at::Tensor tensor = detail::new_tensor(sizes, at::TensorOptions(dtype));
      const at::Tensor like = at::empty(sizes, dtype);
      EXPECT_EQ(tensor.sizes(), like.sizes());
      EXPECT_EQ(tensor.strides(), like.strides());
      EXPECT_EQ(tensor.dtype(), like.dtype());
      EXPECT_EQ(tensor.key_set(), like.key_set());
      EXPECT_EQ(tensor.storage().nbytes(), like.storage().nbytes());
      EXPECT_TRUE(tensor.zero_().eq(0).all().item<bool>());
    }
  }
}

TEST_F(LargeMemoryTest, WhatIsDroppedIsUsedAgain) {
  at::Tensor first = bytes(8 * kMegabyte);
  const void* memory = first.data_ptr();
  first.reset();
  EXPECT_EQ(detail::kept_bytes(), static_cast<std::size_t>(8 * kMegabyte));
  const at::Tensor much_smaller = bytes(5 * kMegabyte);
  EXPECT_NE(much_smaller.data_ptr(), memory);
  const at::Tensor second = bytes(8 * kMegabyte - 100);
  EXPECT_EQ(second.data_ptr(), memory);
  EXPECT_EQ(detail::kept_bytes(), 0U);
}

TEST_F(LargeMemoryTest, TheLimitHolds) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < 12; ++i) all.push_back(bytes(8 * kMegabyte));
  const void* last = all.back().data_ptr();
  all.clear();
  EXPECT_EQ(detail::kept_bytes(), kKeep);
  // The last ones are kept.
  bool found = false;
  for (int i = 0; i < 8; ++i) {
    all.push_back(bytes(8 * kMegabyte));
    found = found || all.back().data_ptr() == last;
  }
  EXPECT_TRUE(found);
  all.clear();
  (void)bytes(100 * kMegabyte);
  EXPECT_LE(detail::kept_bytes(), kKeep);
}

TEST_F(LargeMemoryTest, SmallTensorsAreNotKept) {
  (void)bytes(kMegabyte);
  EXPECT_EQ(detail::kept_bytes(), 0U);
}

TEST_F(LargeMemoryTest, ItCanBeSwitchedOff) {
  detail::set_kept_bytes_limit(0);
  (void)bytes(8 * kMegabyte);
  EXPECT_EQ(detail::kept_bytes(), 0U);
}

TEST_F(LargeMemoryTest, TensorsGrowAndAreDroppedOnOtherThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 20; ++round) {
        at::Tensor tensor = bytes((4 + i) * kMegabyte).fill_(i);
        tensor.resize_({12 * kMegabyte});
        EXPECT_EQ(tensor[0].item<int>(), i);
        std::thread([dropped = std::move(tensor)]() mutable { dropped.reset(); }).join();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(detail::kept_bytes(), kKeep);
}

}  // namespace
}  // namespace tessera::test
