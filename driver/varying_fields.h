// The options by which the rows of a table differ, as columns.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace stp {

/// Of the rows of a result record: each field of the configuration that differs between rows, and those that
/// are needed to tell two rows apart. A table shows the fields `shown` itself.
class VaryingFields {
 public:
  VaryingFields(const nlohmann::json& rows, const std::set<std::string>& shown);

  /// Inserts the columns' titles or a row's values from position `at` on; a configuration's name comes first.
  void insert_titles(std::vector<std::string>& head, size_t at) const;
  void insert_values(std::vector<std::string>& cells, size_t at, const nlohmann::json& row) const;

 private:
  [[nodiscard]] std::string value(const std::string& field, const nlohmann::json& row) const;

  std::vector<std::string> fields_;
  bool names_;
  std::map<std::string, std::map<std::string, size_t>>
      numbers_;  // by field and text: of values too long for a table
};

}  // namespace stp
