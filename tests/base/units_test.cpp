#include "tessera/base/units.h"

#include <limits>

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(FormatBytesTest, BytesAreExact) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1), "1 B");
  EXPECT_EQ(format_bytes(999), "999 B");
}

TEST(FormatBytesTest, LargerOnesShowOneDecimalBelowAHundred) {
  EXPECT_EQ(format_bytes(1'000), "1.0 kB");
  EXPECT_EQ(format_bytes(1'500), "1.5 kB");
  EXPECT_EQ(format_bytes(99'900), "99.9 kB");
  EXPECT_EQ(format_bytes(100'000), "100 kB");
  EXPECT_EQ(format_bytes(67'108'864), "67.1 MB");
}

TEST(FormatBytesTest, RoundingNeverShowsAThousandOfAUnitThatHasALargerOne) {
  EXPECT_EQ(format_bytes(999'499), "999 kB");
  EXPECT_EQ(format_bytes(999'500), "1.0 MB");
  EXPECT_EQ(format_bytes(99'949), "99.9 kB");
  EXPECT_EQ(format_bytes(99'950), "100 kB");
}

TEST(FormatBytesTest, UnitsGoUpToExabytes) {
  EXPECT_EQ(format_bytes(2'000'000'000), "2.0 GB");
  EXPECT_EQ(format_bytes(3'000'000'000'000), "3.0 TB");
  EXPECT_EQ(format_bytes(4'000'000'000'000'000), "4.0 PB");
  EXPECT_EQ(format_bytes(kMost), "9.2 EB");
}

TEST(FormatPicosecondsTest, UnitsGoUpToSeconds) {
  EXPECT_EQ(format_picoseconds(250'000), "250 ns");
  EXPECT_EQ(format_picoseconds(3'200'000), "3.2 us");
  EXPECT_EQ(format_picoseconds(6'800'000'000), "6.8 ms");
  EXPECT_EQ(format_picoseconds(1'500'000'000'000), "1.5 s");
  EXPECT_EQ(format_picoseconds(kMost), "9223372 s");
}

TEST(FormatPicosecondsTest, PicosecondsAreExact) {
  EXPECT_EQ(format_picoseconds(0), "0 ps");
  EXPECT_EQ(format_picoseconds(7), "7 ps");
  EXPECT_EQ(format_picoseconds(999), "999 ps");
}

}  // namespace
}  // namespace tessera
