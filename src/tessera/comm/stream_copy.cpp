#include "tessera/comm/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tessera::detail {

#ifdef __SSE2__

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kLeastRow = 512;
constexpr std::int64_t kLeastBox = 1 << 20;

/// Copies a row, and asks for as much of the next one.
void stream_row(std::byte* out, const std::byte* in, const std::byte* next, std::size_t bytes) {
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine;
  std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + kLine <= bytes; i += kLine) {
    // An address outside of the tensor is no error here.
    _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
    const auto* from = reinterpret_cast<const __m128i*>(in + i);
    auto* to = reinterpret_cast<__m128i*>(out + i);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(out + i, in + i, bytes - i);
}

}  // namespace

bool is_worth_streaming(const BoxLoops& box, std::size_t bytes) {
  if (box.loops.empty() || bytes < kLeastRow) return false;
  auto total = static_cast<std::int64_t>(bytes);
  for (const auto& loop : box.loops) total *= loop.size;
  return total >= kLeastBox;
}

void stream_rows(const BoxLoops& box, std::size_t bytes) {
  const Loop& rows = box.loops.back();
  for_each_round(box.out, box.in, box.loops.begin(), box.loops.end() - 1,
                 [&](std::byte* out, const std::byte* in) {
                   for (std::int64_t i = 0; i < rows.size; ++i) {
                     stream_row(out, in, in + rows.in_stride, bytes);
                     out += rows.out_stride;
                     in += rows.in_stride;
                   }
                 });
  // Others may read as soon as this returns.
  _mm_sfence();
}

#else

bool is_worth_streaming(const BoxLoops& /*box*/, std::size_t /*bytes*/) { return false; }

void stream_rows(const BoxLoops& box, std::size_t bytes) {
  for_each_round(box.out, box.in, box.loops.begin(), box.loops.end(),
                 [&](std::byte* out, const std::byte* in) { std::memcpy(out, in, bytes); });
}

#endif

}  // namespace tessera::detail
