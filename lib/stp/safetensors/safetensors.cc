#include "stp/safetensors/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "stp/base/json_input.h"
#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "as the format's numbers");
constexpr int64_t kPrefix = 8, kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::pair<const char*, DType> kTypes[] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"BF16", DType::bf16}};
constexpr const char* kDownload = "write or copy the file again";

// False at the end of the file, or after an error.
bool read_bytes(int file, int64_t at, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pread(file, bytes.data(), bytes.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
    at += count;
  }
  return true;
}

std::vector<int64_t> whole_numbers(JsonInput& input, const char* key) {
  std::vector<int64_t> numbers;
  for (const json& each : input.array(key)) {
    if (!each.is_number_unsigned() || each.get<uint64_t>() > INT64_MAX)
      throw input.error(key, "has " + json_text(each), "write whole numbers from 0 on");
    numbers.push_back(each.get<int64_t>());
  }
  return numbers;
}

// `size`: of all tensors' bytes, which begin at `data`.
StoredTensor read_tensor(JsonInput input, int64_t data, int64_t size) {
  StoredTensor tensor;
  const std::string type = input.string("dtype");
  const auto* const known = std::ranges::find(kTypes, type, [](const auto& each) { return each.first; });
  if (known == std::end(kTypes))
    throw input.error("dtype", "is " + type + ", which cannot be read", "convert it to F64, F32 or BF16");
  tensor.type = known->second;
  tensor.shape = whole_numbers(input, "shape");
  tensor.elements = 1;
  int64_t bytes = 0;
  bool fits = true;
  for (const int64_t length : tensor.shape)
    fits = fits && !__builtin_mul_overflow(tensor.elements, length, &tensor.elements);
  fits =
      fits && !__builtin_mul_overflow(tensor.elements, static_cast<int64_t>(bytes_of(tensor.type)), &bytes);
  const std::vector<int64_t> offsets = whole_numbers(input, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size)
    throw input.error("data_offsets",
                      "are not a begin and an end in the file's " + std::to_string(size) + " bytes",
                      kDownload);
  if (!fits || bytes != offsets[1] - offsets[0])
    throw input.error(
        "data_offsets",
        "hold " + std::to_string(offsets[1] - offsets[0]) + " bytes, not those of shape and dtype",
        kDownload);
  input.done();
  tensor.begin = data + offsets[0];
  return tensor;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status {};
  if (!file_ || fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw InputError(path, "", "cannot be read", "name a file of safetensors");
  read_header(status.st_size);
}

void SafetensorsFile::read_header(int64_t size) {
  uint64_t length = 0;
  if (size < kPrefix || !read_bytes(file_.get(), 0, std::as_writable_bytes(std::span(&length, 1))))
    throw InputError(path_, "", "is too short for safetensors", kDownload);
  if (length > static_cast<uint64_t>(std::min(size - kPrefix, kLongestHeader)))
    throw InputError(path_, "",
                     "says that its header has " + std::to_string(length) + " bytes, more than it can have",
                     kDownload);
  std::string text(length, ' ');
  if (!read_bytes(file_.get(), kPrefix, std::as_writable_bytes(std::span(text))))
    throw InputError(path_, "", "ends in its header", kDownload);
  const json header = parse_json(text, path_);
  JsonInput input(header, path_);
  const int64_t data = kPrefix + static_cast<int64_t>(length);
  for (const std::string& name : input.keys())
    if (name == "__metadata__")
      input.ignore(name);
    else
      tensors_[name] = read_tensor(input.object(name), data, size - data);
  check_places(data, size);
}

// From `begin` to the end of the file the tensors follow each other.
void SafetensorsFile::check_places(int64_t begin, int64_t size) const {
  std::vector<std::pair<int64_t, const std::string*>> places;
  for (const auto& [name, tensor] : tensors_) places.emplace_back(tensor.begin, &name);
  const auto end_of = [&](const std::string& name) {
    const StoredTensor& tensor = tensors_.at(name);
    return tensor.begin + tensor.elements * static_cast<int64_t>(bytes_of(tensor.type));
  };
  std::ranges::sort(places, {},
                    [&](const auto& place) { return std::pair(place.first, end_of(*place.second)); });
  const std::string* last = nullptr;
  for (const auto& [at, name] : places) {
    if (at != begin)
      throw InputError(
          path_, *name + ".data_offsets",
          at < begin ? "overlap those of " + *last : "leave bytes before it that belong to no tensor",
          kDownload);
    begin = end_of(*name);
    last = name;
  }
  if (begin != size)
    throw InputError(path_, last == nullptr ? "" : *last, "is followed by bytes that belong to no tensor",
                     kDownload);
}

void SafetensorsFile::read(const std::string& name, int64_t first, std::span<double> values) const {
  const StoredTensor& tensor = tensors_.at(name);
  if (first + std::ssize(values) > tensor.elements) throw std::logic_error(name + " has fewer elements");
  with_element<Bfloat16>(tensor.type, "a tensor", [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements(values.size());
    if (!read_bytes(file_.get(), tensor.begin + first * static_cast<int64_t>(sizeof(T)),
                    std::as_writable_bytes(std::span(elements))))
      throw InputError(path_, name, "cannot be read to its end", kDownload);
    std::ranges::copy(elements, values.begin());
  });
}

void write_safetensors(const std::string& path, DType type, std::span<const NamedTensor> tensors) {
  json header;
  header["__metadata__"]["format"] = "pt";  // transformers asks for it
  const auto* const name_of_type =
      std::ranges::find(kTypes, type, [](const auto& each) { return each.second; });
  size_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    const size_t begin = std::exchange(end, end + tensor.values.size() * bytes_of(type));
    header[tensor.name] = {
        {"dtype", name_of_type->first}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + kPrefix - 1) / kPrefix * kPrefix, ' ');  // so that elements are aligned
  std::ofstream file(path, std::ios::binary);
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  const uint64_t length = text.size();
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(text)));
  for (const NamedTensor& tensor : tensors)
    with_element<Bfloat16>(type, "a tensor", [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> elements;
      elements.reserve(tensor.values.size());
      for (const double value : tensor.values) elements.push_back(T(static_cast<Wide<T>>(value)));
      write(std::as_bytes(std::span(elements)));
    });
  file.close();
  if (!file) throw std::runtime_error(path + ": could not be written completely (is the disk full?)");
}

}  // namespace stp
