#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output_folder.h"
#include "stp/base/json_input.h"
#include "stp/model/config.h"
#include "stp/model/hugging_face.h"

namespace stp {
namespace {

std::string lines_of(const char* title, const std::vector<ImportedModel::Field>& fields,
                     const char* between) {
  std::string lines = std::string(title) + "\n";
  for (const auto& [name, what] : fields) lines += "  " + name + between + what + "\n";
  return lines;
}

}  // namespace

void import_command(const ImportOptions& options) {
  check_outputs({{options.out, "--out"}});
  const std::string config =
      std::filesystem::is_directory(options.config) ? options.config + "/config.json" : options.config;
  const ImportedModel made = import_hugging_face(read_json_file(config), config, options.name);
  const ModelConfig model = read_model(*made.content, config);
  const bool file = write_record(options.out, *made.content);
  std::fprintf(file ? stdout : stderr, "%s: %s, a %s, written as model_type %s, %.0f parameters\n%s%s",
               config.c_str(), model.name.c_str(), made.type.c_str(),
               made.content->at("model_type").get<std::string>().c_str(), model.parameters(),
               lines_of("taken:", made.taken, " -> ").c_str(),
               lines_of("left out:", made.left_out, ": ").c_str());
}

}  // namespace stp
