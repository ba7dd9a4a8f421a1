#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/world.h"

// Links the stubs of engines that are not built in, in place of the engines.

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(AbsentEnginesTest, SayWhatToInstall) {
  EXPECT_FALSE(detail::has_gloo());
  EXPECT_FALSE(detail::has_mpi());
  EXPECT_THAT(
      [] { (void)detail::make_gloo_world(0, 1, {}, {}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("the gloo engine is not built in"),
                                           HasSubstr("install libgloo-dev, configure again"),
                                           HasSubstr("or use --engine threads or mpi"))));
  EXPECT_THAT([] { (void)detail::make_mpi_world({}); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("the mpi engine is not built in"),
                        HasSubstr("install libopenmpi-dev and openmpi-bin, configure again"),
                        HasSubstr("or use --engine threads or gloo"))));
}

TEST(AbsentEnginesTest, AreRefusedByLaunch) {
  std::string words[] = {"program", "--engine", "gloo"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  int count = 3;
  ::testing::internal::CaptureStderr();
  const int code = launch(count, arguments, [](World&) { ADD_FAILURE() << "a rank runs"; });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("program: rank 0: launch: the gloo engine is not built in"));
  EXPECT_EQ(code, 2);
}

}  // namespace
}  // namespace tessera::test
