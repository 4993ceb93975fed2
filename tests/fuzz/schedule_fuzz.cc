// Fuzz target of the schedule readers: JSON, CSV and text. Whatever one of them accepts survives being
// written and read again, and bears no trailing text; whatever validate() accepts besides can be written in
// every form.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "require.h"
#include "stp/base/json_input.h"
#include "stp/schedule/csv.h"
#include "stp/schedule/read_schedule.h"
#include "stp/schedule/validate.h"

namespace {

using namespace stp;

bool same(const Schedule& a, const Schedule& b) {
  return a.name == b.name && a.placement == b.placement && a.microbatches == b.microbatches &&
         a.ranks == b.ranks;
}

// A small file can ask for much memory by its size fields alone; that is allowed, but a waste of the fuzzer's
// time.
bool small(const Schedule& schedule) {
  return int64_t{schedule.pp()} * schedule.chunks() * schedule.microbatches < 100000;
}

void try_form(const std::string& text, const std::string& file) {
  try {
    const Schedule schedule = read_schedule(text, file);
    require(refuses([&] { read_schedule(text + "x", file); }), "trailing text is refused", text);
    require(refuses([&] { read_schedule(text + "\n{}", file); }), "a second value is refused", text);
    require(same(read_schedule(to_json(schedule).dump(), "fuzz.json"), schedule), "JSON round trip", text);
    if (!small(schedule)) return;
    validate(schedule);
    require(same(read_schedule(to_text(schedule), "fuzz.txt"), schedule), "text round trip", text);
    for (const CsvForm form : {CsvForm::compute_only, CsvForm::compute_comms, CsvForm::compute_comms_waits}) {
      const std::string csv = to_csv(schedule, form);
      const Schedule read = read_schedule(csv, "fuzz.csv");
      validate(read);
      require(to_csv(read, form) == csv, "CSV round trip", text);
      // A rank's chunks are renumbered by their stages, and it has many files' name.
      if (file.ends_with(".csv")) require(same(read, schedule), "CSV round trip", text);
    }
    peak_activations(schedule);
  } catch (const InputError&) {
  }
}

}  // namespace

void stp::check(const std::string& text) {
  for (const char* file : {"fuzz.json", "fuzz.csv", "fuzz.txt"}) try_form(text, file);
}
