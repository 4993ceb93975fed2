#include "stp/base/partial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "support/folder.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using testing::UnorderedElementsAre;

class Partial : public FolderTest {
 protected:
  const fs::path folder_{FolderTest::folder_};
};

TEST_F(Partial, IsRemovedOnceNoProcessHasItLocked) {
  fs::path file, folder;
  FileDescriptor first = make_partial(folder_, file, PartialKind::file);
  FileDescriptor second = make_partial(folder_, folder, PartialKind::folder);
  ASSERT_TRUE(first && second);
  std::ofstream(folder / "inside") << "x";
  std::ofstream(folder_ / ".mine") << "x";
  EXPECT_THAT(remove_leftovers(folder_), UnorderedElementsAre());
  first = FileDescriptor();
  second = FileDescriptor();
  EXPECT_THAT(remove_leftovers(folder_), UnorderedElementsAre(file.string(), folder.string()));
  EXPECT_FALSE(fs::exists(file) || fs::exists(folder));
  EXPECT_TRUE(fs::exists(folder_ / ".mine"));
}

// As four runs that start at the same moment in one folder do.
TEST_F(Partial, IsNotRemovedByOthersWhileItIsBeingMade) {
  std::atomic<int> lost = 0;
  std::vector<std::thread> runs;
  for (int run = 0; run < 4; ++run)
    runs.emplace_back([&, kind = run % 2 == 0 ? PartialKind::folder : PartialKind::file] {
      for (int i = 0; i < 200; ++i) {
        fs::path path;
        remove_leftovers(folder_);
        const FileDescriptor made = make_partial(folder_, path, kind);
        if (!made || !fs::exists(path)) ++lost;
        fs::remove(path);
      }
    });
  for (std::thread& run : runs) run.join();
  EXPECT_EQ(lost, 0);
}

TEST_F(Partial, FilesAndFoldersAreFlushed) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_TRUE(flush_to_disk(folder_) && flush_to_disk(folder_ / "file"));
  EXPECT_FALSE(flush_to_disk(folder_ / "none"));
}

TEST_F(Partial, CannotBeMadeInAFolderThatDoesNotExist) {
  fs::path path;
  EXPECT_FALSE(make_partial(folder_ / "none", path, PartialKind::file));
  EXPECT_FALSE(make_partial(folder_ / "none", path, PartialKind::folder));
  EXPECT_THAT(remove_leftovers(folder_ / "none"), UnorderedElementsAre());
}

}  // namespace
}  // namespace stp
