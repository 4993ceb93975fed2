// The location of the suite's data files: scenarios, models, hardware profiles, published figures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace stp {

/// The path of a data file, given relative to the source tree ("profiles/a800.json"). The base is
/// $STP_DATA_DIR if set, else share/stp of the running program's installation, else the source tree around
/// its build, else the source tree that it was built from.
std::string data_path(const std::string& relative);

/// The names, sorted, of the JSON files in the data folder `folder`. Throws InputError if there is no such
/// folder.
std::vector<std::string> data_names(const std::string& folder);

/// A path of the command line, made absolute: it is relative to the current folder.
std::string path_of_user(const std::string& path);
/// A path in the file `from` is relative to that file's folder; with `from` "" it is the command line's.
std::string path_in(const std::string& from, const std::string& path);

/// Whether the word for a model or cluster is a path, not a name of the suite's: it ends in .json or has a
/// slash.
bool is_path(const std::string& word);

/// Finds the file that `word` names: a path_in() `from` if it ends in .json, else the data file
/// `folder`/`word`.json. If there is no such file, throws InputError that names `field` and lists the
/// available names.
std::string find_data_file(const std::string& word, const std::string& folder, const std::string& from,
                           const std::string& field);

/// Throws InputError if `value`, from `file`, has the fields of another of the suite's kinds of files than
/// `kind`: "a scenario", "a result record", "a schedule", "a model" or "a hardware profile".
void refuse_other_kind(const nlohmann::json& value, const std::string& file, const std::string& kind);

/// 64-bit FNV-1a of a file's bytes, as decimal digits: the same on all machines.
std::string hash_of(const std::string& bytes);

}  // namespace stp
