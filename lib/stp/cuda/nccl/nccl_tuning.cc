#include "stp/cuda/nccl/nccl_tuning.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>
#include <system_error>

#include "stp/base/error.h"

namespace stp::cuda {

namespace {

// First words of the groups' names.
constexpr const char* kGroups[] = {"tp",        "cp",        "dp",  "model", "vocabulary",
                                   "embedding", "pipelines", "p2p", "world", "all"};

int whole_number(const std::string& text, int least, int most, const std::string& key,
                 const std::function<InputError(const std::string&, const std::string&)>& refuse) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < least || value > most)
    throw refuse(
        key + "=" + text + " is no number from " + std::to_string(least) + " to " + std::to_string(most),
        "write " + key + "=" + std::to_string(std::max(least, 2)) + ", say");
  return value;
}

void set(NcclTuning& tuning, const std::string& key, const std::string& value,
         const std::function<InputError(const std::string&, const std::string&)>& refuse) {
  const auto number = [&](int least, int most) { return whole_number(value, least, most, key, refuse); };
  if (key == "min_ctas") {
    tuning.min_ctas = number(1, 64);
  } else if (key == "max_ctas") {
    tuning.max_ctas = number(1, 64);
  } else if (key == "cluster") {
    tuning.cga_cluster_size = number(0, 8);
  } else {
    throw refuse("there is no \"" + key + "\"", "use min_ctas, max_ctas or cluster");
  }
}

}  // namespace

NcclOptions read_nccl_options(const std::string& flag, const std::vector<std::string>& texts) {
  NcclOptions options;
  for (const std::string& text : texts) {
    const auto refuse = [&](const std::string& problem, const std::string& remedy) {
      return InputError("", flag, "in \"" + text + "\" " + problem, remedy);
    };
    const size_t colon = text.find(':');
    const std::string group = text.substr(0, colon);
    if (std::ranges::find(kGroups, group) == std::end(kGroups))
      throw refuse("there is no group \"" + group + "\"", "use one of " + joined(kGroups));
    NcclTuning& tuning =
        group == "all" ? options.standard : options.groups.try_emplace(group, options.standard).first->second;
    std::istringstream words(colon == std::string::npos ? "" : text.substr(colon + 1));
    bool any = false;
    for (std::string word; std::getline(words, word, ',');) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) throw refuse("\"" + word + "\" has no value", "write KEY=VALUE");
      set(tuning, word.substr(0, equals), word.substr(equals + 1), refuse);
      any = true;
    }
    if (!any) throw refuse("nothing is set", "write p2p:max_ctas=2, say");
    if (tuning.max_ctas > 0 && tuning.min_ctas > tuning.max_ctas)
      throw refuse("min_ctas is above max_ctas", "make it smaller");
  }
  return options;
}

const NcclTuning& NcclOptions::of(const std::string& group) const {
  const auto found = groups.find(group.substr(0, group.find(' ')));
  return found == groups.end() ? standard : found->second;
}

}  // namespace stp::cuda
