#include "stp/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "stp/base/json_input.h"
#include "stp/model/hugging_face.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kStep = "step-";
constexpr const char* kProgress = "training.json";
constexpr const char* kIndexSuffix = ".safetensors.index.json";
constexpr const char* kSecondMoment = "second_moment.";
constexpr std::pair<const char*, Trained> kStates[] = {{"first_moment.", Trained::first_moments},
                                                       {kSecondMoment, Trained::second_moments},
                                                       {"master.", Trained::masters}};

// The number behind "step-", or −1.
int number_of(const std::string& name) {
  int number = -1;
  if (!name.starts_with(kStep)) return -1;
  const char *const begin = name.data() + std::string(kStep).size(), *const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(begin, end, number);
  return error == std::errc() && last == end ? number : -1;
}

// What a file of Hugging Face's may have beside parameters: constants of old versions' modules, and a tied
// head.
bool may_be_beside(const std::string& name, const ModelConfig& model) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias") || (model.tied() && name == "lm_head.weight");
}

// The largest value of a type: what is beyond it would be infinite in a run.
double largest_of(DType type) {
  if (type == DType::f64) return std::numeric_limits<double>::max();
  return type == DType::bf16 ? 0x1.FEp127 : std::numeric_limits<float>::max();
}

void write_json(const fs::path& path, const json& value) {
  std::ofstream file(path);
  file << value.dump(2) << "\n";
  file.close();
  if (!file)
    throw std::runtime_error(path.string() + ": could not be written completely (is the disk full?)");
}

// Refuses another model of the same shapes, as far as model files tell models apart: by another rotary base,
// but not by scaled angles.
void check_config(const std::string& path, const ModelConfig& model) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const ModelConfig theirs = read_model(path);
  check_hugging_face_has(theirs, path);
  const json stored = hugging_face_config(theirs), wanted = hugging_face_config(model);
  for (const auto& [key, value] : wanted.items())
    if (const json& found = stored.value(key, json()); found != value)
      throw InputError(path, key, "is " + found.dump() + ", but " + model.name + " has " + value.dump(),
                       "use the scenario with this checkpoint's own model");
}

// Writes tensors to `stem`.safetensors, or to several and their index.
void write_tensors(const fs::path& folder, const std::string& stem, DType type,
                   std::vector<NamedTensor> tensors, int64_t largest) {
  std::vector<std::vector<NamedTensor>> files(1);
  int64_t in_file = 0, in_all = 0;
  for (NamedTensor& tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.values.size() * bytes_of(type));
    if (in_file + bytes > largest && !files.back().empty()) {
      files.emplace_back();
      in_file = 0;
    }
    in_file += bytes;
    in_all += bytes;
    files.back().push_back(std::move(tensor));
  }
  if (files.size() == 1) return write_safetensors(folder / (stem + ".safetensors"), type, files.front());
  json index{{"metadata", {{"total_size", in_all}}}};
  for (size_t i = 0; i < files.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "-%05zu-of-%05zu.safetensors", i + 1, files.size());
    write_safetensors(folder / (stem + name), type, files[i]);
    for (const NamedTensor& tensor : files[i]) index["weight_map"][tensor.name] = stem + name;
  }
  write_json(folder / (stem + kIndexSuffix), index);
}

}  // namespace

std::string checkpoint_name(int updates) { return kStep + std::to_string(updates); }

std::string last_checkpoint_in(const std::string& folder) {
  std::error_code ignored;
  int last = -1;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    last = std::max(last, number_of(entry.path().filename().string()));
  return last < 0 ? folder : (fs::path(folder) / checkpoint_name(last)).string();
}

Checkpoint::Checkpoint(const std::string& folder, const ModelConfig& model) : of_(model) {
  check_hugging_face_has(model, "--resume");
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw InputError(folder, "--resume", "is not a folder", "name a checkpoint's");
  const std::string last = last_checkpoint_in(folder);
  model_ = read_tensors(last, "model");
  check(model_, {""});
  check_config((fs::path(last) / "config.json").string(), model);
  const fs::path progress = fs::path(last) / kProgress;
  if (!fs::exists(progress, ignored)) {
    for (const char* suffix : {".safetensors", kIndexSuffix})
      if (fs::exists(fs::path(last) / (std::string("optimizer") + suffix), ignored))
        throw InputError(progress, "", "is missing beside the optimizer's state",
                         "copy it too; to begin anew with these weights, remove the optimizer's files");
    return;
  }
  JsonInput input = JsonInput::of_file(progress);
  progress_.updates = input.integer("updates", 0, 1 << 30);
  const double samples = input.number("samples", 0, 0x1p53);
  if (samples != std::floor(samples)) throw input.error("samples", "is not whole", "write a whole number");
  progress_.samples = static_cast<int64_t>(samples);
  input.done();
  optimizer_ = read_tensors(last, "optimizer");
  std::vector<std::string> prefixes{"first_moment.", kSecondMoment};
  has_masters_ = std::ranges::any_of(optimizer_.file_of,
                                     [](const auto& each) { return each.first.starts_with("master."); });
  if (has_masters_) prefixes.emplace_back("master.");
  check(optimizer_, prefixes);
}

Checkpoint::Tensors Checkpoint::read_tensors(const std::string& folder, const std::string& stem) {
  const fs::path index = fs::path(folder) / (stem + kIndexSuffix),
                 one = fs::path(folder) / (stem + ".safetensors");
  std::error_code ignored;
  Tensors tensors{index, {}, {}};
  if (!fs::exists(index, ignored)) {
    tensors.path = one;
    tensors.files.emplace_back(one);
    for (const auto& [name, tensor] : tensors.files.front().tensors()) tensors.file_of[name] = 0;
    return tensors;
  }
  JsonInput input = JsonInput::of_file(index);
  if (input.has("metadata")) input.ignore("metadata");
  JsonInput map = input.object("weight_map");
  std::map<std::string, size_t> files;
  for (const std::string& name : map.keys()) {
    const std::string file = map.string(name);
    if (file != fs::path(file).filename() || !file.ends_with(".safetensors"))
      throw map.error(name, "is in \"" + file + "\", which names no file beside the index", "correct it");
    const auto [at, added] = files.try_emplace(file, tensors.files.size());
    if (added) tensors.files.emplace_back((fs::path(folder) / file).string());
    tensors.file_of[name] = at->second;
    if (!tensors.files[at->second].tensors().contains(name))
      throw map.error(name, "is not in " + file, "correct it");
  }
  input.done();
  for (const SafetensorsFile& file : tensors.files)
    for (const auto& [name, tensor] : file.tensors())
      if (!tensors.file_of.contains(name) || tensors.files[tensors.file_of[name]].path() != file.path())
        throw InputError(file.path(), name, "is not there by " + index.string(),
                         "write or copy the files again");
  return tensors;
}

void Checkpoint::check(const Tensors& tensors, const std::vector<std::string>& prefixes) const {
  std::set<std::string> known;
  for (const auto& [parameter, part] : model_parameters(of_))
    for (const std::string& prefix : prefixes) {
      const HuggingFaceTensor tensor = hugging_face_tensor(of_, parameter, part);
      const std::string name = prefix + tensor.name;
      const auto found = tensors.file_of.find(name);
      if (found == tensors.file_of.end())
        throw InputError(tensors.path, name, "is missing, which " + of_.name + " has",
                         "use the scenario with this checkpoint's own model");
      const SafetensorsFile& file = tensors.files[found->second];
      if (const std::vector<int64_t>& stored = file.tensors().at(name).shape; stored != tensor.shape())
        throw InputError(
            file.path(), name + ".shape",
            "is " + json(stored).dump() + ", but " + of_.name + " has " + json(tensor.shape()).dump(),
            "use the scenario with this checkpoint's own model");
      known.insert(name);
    }
  for (const auto& [name, file] : tensors.file_of)
    if (!known.contains(name) && !may_be_beside(name, of_))
      throw InputError(tensors.files[file].path(), name, "is no tensor of " + of_.name,
                       "use the scenario with this checkpoint's own model");
}

void Checkpoint::read(const Tensors& tensors, const std::string& prefix, DType type,
                      MatrixShard& shard) const {
  const ParameterPart part{shard.name, shard.all_rows, shard.all_columns, Split::none};
  const HuggingFaceTensor tensor = hugging_face_tensor(of_, shard.name, part);
  const std::string name = prefix + tensor.name;
  const SafetensorsFile& file = tensors.files[tensors.file_of.at(name)];
  const std::span<double> values(shard.values);
  const double largest = largest_of(type);
  const auto read_values = [&](int64_t first, std::span<double> to) {
    file.read(name, first, to);
    for (const double value : to) {
      if (std::abs(value) <= largest && (value >= 0 || prefix != kSecondMoment)) continue;
      const bool of_type = std::isfinite(value) && std::abs(value) > largest;
      throw InputError(
          file.path(), name,
          "has a value of " + shown("%g", value) +
              (of_type ? ", and the largest of " + to_string(type) + " is " + shown("%g", largest) : ""),
          of_type ? "use another run.type or another checkpoint" : "use another checkpoint");
    }
  };
  if (tensor.transposed) {
    std::vector<double> column(static_cast<size_t>(shard.rows));
    for (int64_t i = 0; i < shard.columns; ++i) {
      read_values(tensor.at(shard.first_row, shard.first_column + i), column);
      for (int64_t row = 0; row < shard.rows; ++row) values[row * shard.columns + i] = column[row];
    }
    return;
  }
  if (shard.columns == shard.all_columns)  // the rows lie one after the other
    return read_values(tensor.at(shard.first_row, 0), values);
  for (int64_t row = 0; row < shard.rows; ++row)
    read_values(tensor.at(shard.first_row + row, shard.first_column),
                values.subspan(row * shard.columns, shard.columns));
}

void Checkpoint::restore(Trainer& trainer) const {
  const DType type = trainer.type();
  trainer.restore(Trained::weights, [&](MatrixShard& shard) { read(model_, "", type, shard); });
  trainer.restore_updates(progress_.updates);
  if (!has_optimizer_state()) return;
  for (const auto& [prefix, state] : kStates)
    if (state != Trained::masters || has_masters_)
      trainer.restore(state, [&, &prefix = prefix](MatrixShard& shard) {
        read(optimizer_, prefix, statistics_type(type), shard);
      });
}

void write_checkpoint(Trainer& trainer, const Training& training, const TrainingProgress& progress,
                      const std::string& folder, bool root, int64_t largest) {
  const std::map<std::string, ParameterPart> parts = model_parameters(training.model);
  std::vector<NamedTensor> tensors;
  // No deadline of the other processes expires while process 0 assembles and writes.
  const auto add = [&](const std::string& prefix, Matrices&& matrices) {
    const RunGuard::Work work(trainer.guard());
    std::map<std::string, size_t> of_name;  // several parameters may be in one
    for (auto& [name, values] : matrices) {
      const ParameterPart& part = parts.at(name);
      const HuggingFaceTensor to = hugging_face_tensor(training.model, name, part);
      const auto [at, added] = of_name.try_emplace(prefix + to.name, tensors.size());
      if (added) tensors.push_back({at->first, to.shape(), {}});
      std::vector<double>& all = tensors[at->second].values;
      if (!to.transposed && to.rows == part.rows) {
        all = std::move(values);
        continue;
      }
      all.resize(static_cast<size_t>(to.rows * to.columns));
      for (int64_t row = 0; row < part.rows; ++row)
        for (int64_t column = 0; column < part.columns; ++column)
          all[to.at(row, column)] = values[row * part.columns + column];
    }
  };
  const auto write = [&](const char* stem, DType type) {
    const RunGuard::Work work(trainer.guard());
    write_tensors(folder, stem, type, std::exchange(tensors, {}), largest);
  };
  add("", trainer.weights());
  if (root) write("model", training.type);
  for (const auto& [prefix, state] : kStates)
    if (state != Trained::masters || training.type == DType::bf16) add(prefix, trainer.trained(state));
  if (!root) return;
  write("optimizer", statistics_type(training.type));
  write_json(fs::path(folder) / "config.json", hugging_face_config(training.model));
  write_json(fs::path(folder) / kProgress, {{"updates", progress.updates}, {"samples", progress.samples}});
}

}  // namespace stp
