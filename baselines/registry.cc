#include "baselines/registry.h"
#include "stp/base/json_input.h"

namespace stp {

const Generator& find_generator(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const Generator* generator : generators()) {
    if (generator->name == name) return *generator;
    names.emplace_back(generator->name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  const std::string guess = nearest(name, names);
  throw InputError("", "", "there is no schedule \"" + name + "\"",
                   (guess.empty() ? "" : "did you mean " + guess + "? ") + ("there are " + list));
}

}  // namespace stp
