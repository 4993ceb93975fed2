#include "stp/base/partial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace stp {
namespace {

namespace fs = std::filesystem;
using testing::UnorderedElementsAre;

class Partial : public testing::Test {
 protected:
  Partial() {
    std::string pattern = testing::TempDir() + "/partialXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Partial() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(Partial, IsRemovedOnceNoProcessHasItLocked) {
  fs::path file, folder;
  PartialLock first = make_partial(folder_, file, PartialKind::file);
  PartialLock second = make_partial(folder_, folder, PartialKind::folder);
  ASSERT_TRUE(first && second);
  std::ofstream(folder / "inside") << "x";
  std::ofstream(folder_ / ".mine") << "x";
  EXPECT_THAT(remove_leftovers(folder_), UnorderedElementsAre());
  first = PartialLock();
  second = PartialLock();
  EXPECT_THAT(remove_leftovers(folder_), UnorderedElementsAre(file.string(), folder.string()));
  EXPECT_FALSE(fs::exists(file) || fs::exists(folder));
  EXPECT_TRUE(fs::exists(folder_ / ".mine"));
}

TEST_F(Partial, CannotBeMadeInAFolderThatDoesNotExist) {
  fs::path path;
  EXPECT_FALSE(make_partial(folder_ / "none", path, PartialKind::file));
  EXPECT_FALSE(make_partial(folder_ / "none", path, PartialKind::folder));
  EXPECT_THAT(remove_leftovers(folder_ / "none"), UnorderedElementsAre());
}

}  // namespace
}  // namespace stp
