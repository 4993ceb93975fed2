#include "baselines/registry.h"
#include "stp/base/json_input.h"

namespace stp {

const Generator& find_generator(const std::string& name) {
  std::vector<std::string> names;
  for (const Generator* generator : generators()) {
    if (generator->name == name) return *generator;
    names.emplace_back(generator->name);
  }
  const std::string file =
      name.find('.') == std::string::npos ? "" : R"(a file is {"file": ")" + name + "\"}; ";
  throw InputError("", "", "there is no schedule \"" + name + "\"",
                   file + did_you_mean(name, names) + "there are " + joined(names));
}

}  // namespace stp
