// Fuzz target of the reader of tensors (safetensors). An accepted file's tensors lie within it, fill it, and
// can be read from first to last element.
#include <cstdint>
#include <string>

#include "require.h"
#include "stp/safetensors/safetensors.h"

void stp::check(const std::string& text) {
  const SafetensorsFile file(file_of(text));
  size_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    int64_t elements = 1;
    for (const int64_t each : tensor.shape) elements *= each;
    require(elements == tensor.elements, "a tensor has the elements of its shape", text);
    bytes += static_cast<size_t>(elements) * bytes_of(tensor.type);
    std::vector<double> values(static_cast<size_t>(elements));
    file.read(name, 0, values);
  }
  require(bytes < text.size(), "tensors lie behind the header", text);
}
