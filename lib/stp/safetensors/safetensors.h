// Files of tensors in the format of Hugging Face's safetensors: eight bytes with the length of a header, the
// header (JSON: by tensor dtype, shape and data_offsets), then the tensors' bytes without gaps.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "stp/base/file_descriptor.h"
#include "stp/device/tensor.h"

namespace stp {

struct StoredTensor {
  DType type = DType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0, elements = 0;  // begin: offset in the file, in bytes
};

/// A file to read from. It is trusted in nothing: whatever contradicts the format or the file's size is an
/// InputError that names file and tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// Reads as many elements of a tensor as `values` has, from the `first` on.
  void read(const std::string& name, int64_t first, std::span<double> values) const;

 private:
  void read_header(int64_t size);
  void check_places(int64_t begin, int64_t size) const;

  std::string path_;
  FileDescriptor file_;
  std::map<std::string, StoredTensor> tensors_;
};

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> values;
};
/// Writes a new file of tensors of `type` (f64, f32, or bf16). std::runtime_error if it cannot be written.
void write_safetensors(const std::string& path, DType type, std::span<const NamedTensor> tensors);

}  // namespace stp
