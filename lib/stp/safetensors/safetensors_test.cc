#include "stp/safetensors/safetensors.h"

#include <gmock/gmock.h>

#include "stp/base/json_input.h"
#include "support/folder.h"
#include "support/refusal.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Safetensors : public FolderTest {
 protected:
  // A file with this header, and so many bytes of data.
  std::string file(const std::string& header, size_t data = 24, uint64_t length = 0) const {
    if (length == 0) length = header.size();
    return write("a.safetensors",
                 std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0'));
  }
  std::string refused(const std::string& path) const {
    return refusal([&] { const SafetensorsFile opened(path); });
  }
};

constexpr const char* kTwo = R"({"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]},)"
                             R"( "b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [16, 24]}})";

// Bytes as the format's own description has them, not as the writer would.
TEST_F(Safetensors, ReadsWhatTheFormatDescribes) {
  const double values[] = {1.5, -2};
  const std::string path =
      write("a.safetensors", std::string("\x40\0\0\0\0\0\0\0", 8) +
                                 R"({"t":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]}})" + "       " +
                                 std::string(reinterpret_cast<const char*>(values), 16));
  const SafetensorsFile file(path);
  EXPECT_THAT(file.tensors().at("t").shape, testing::ElementsAre(2, 1));
  std::vector<double> read(1);
  file.read("t", 1, read);
  EXPECT_EQ(read[0], -2);
}

TEST_F(Safetensors, ReadsWhatItWrites) {
  const std::vector<NamedTensor> tensors{
      {"b", {2, 2}, {1, -0.5, 3, 0x1p-100}}, {"a", {1}, {7}}, {"c", {0}, {}}};
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    const std::string path = folder_ + "/" + to_string(type);
    write_safetensors(path, type, tensors);
    const SafetensorsFile file(path);
    EXPECT_EQ(file.tensors().size(), tensors.size());
    for (const NamedTensor& tensor : tensors) {
      std::vector<double> values(tensor.values.size());
      file.read(tensor.name, 0, values);
      EXPECT_EQ(values, tensor.values) << to_string(type);
      EXPECT_EQ(file.tensors().at(tensor.name).shape, tensor.shape);
    }
  }
}

TEST_F(Safetensors, TrustsNoFile) {
  EXPECT_EQ(refused(file(kTwo)), "");
  const auto expect_refused = [&](const std::string& path, const char* words) {
    EXPECT_THAT(refused(path), AllOf(HasSubstr(path), HasSubstr(words)));
  };
  expect_refused(folder_, "cannot be read");
  expect_refused(folder_ + "/none", "cannot be read");
  expect_refused(write("short", "1234567"), "too short");
  expect_refused(file(kTwo, 0, 1U << 30), "header has 1073741824 bytes");
  expect_refused(file(kTwo, 24, ~uint64_t{0}), "header has");
  expect_refused(file("{"), "");
  expect_refused(file("[]", 0), "");
  expect_refused(file(kTwo, 23), "b.data_offsets");
  expect_refused(file(kTwo, 25), "b: is followed by bytes");
}

TEST_F(Safetensors, TrustsNoTensor) {
  const auto expect_refused = [&](const std::string& from, const std::string& to, const char* words) {
    std::string header = kTwo;
    header.replace(header.find(from), from.size(), to);
    const std::string path = file(header);
    EXPECT_THAT(refused(path), AllOf(HasSubstr(path), HasSubstr(words)));
  };
  expect_refused("\"b\"", "\"a\"", "a");
  expect_refused("F64", "I64", "a.dtype: is I64, which cannot be read");
  expect_refused("\"dtype\"", "\"type\"", "a.dtype: is missing");
  expect_refused("[2]", "[-2]", "a.shape: has -2");
  expect_refused("[2]", "[2.0]", "a.shape: has 2.0");
  expect_refused("[2]", "2", "a.shape: must be an array");
  expect_refused("[2]", "[3]", "a.data_offsets: hold 16 bytes");
  expect_refused("[2]", "[4611686018427387904, 4, 2]", "a.data_offsets: hold 16 bytes");  // 2⁶⁵ elements
  expect_refused("[2]", "[2305843009213693954]", "a.data_offsets: hold 16 bytes");  // 2⁶⁴ + 16 bytes
  expect_refused("[0, 16]", "[0, 16, 16]", "a.data_offsets: are not a begin and an end");
  expect_refused("[16, 24]", "[24, 16]", "b.data_offsets: are not");
  expect_refused("[16, 24]", "[24, 32]", "b.data_offsets: are not");
  expect_refused("[16, 24]", "[18446744073709551608, 0]", "b.data_offsets");
  expect_refused("[16, 24]", "[12, 20]", "b.data_offsets: overlap those of a");
  expect_refused("[0, 16]", "[8, 24]", "a.data_offsets");
}

}  // namespace
}  // namespace stp
