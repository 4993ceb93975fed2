// A small run of several processes, for failures.py:
//
//   mpi_train STEPS FILE DEADLINE [PROCESS HOW]
//
// trains a model of four ranks and writes the losses, as JSON, to FILE. In the third step PROCESS fails: it
// throws, finds an input error, ends without a word (`exit`), does not come to the step (`hang`), or comes to
// it but not to what is said behind it (`silent`).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>

#include "stp/base/error.h"
#include "support/training.h"

namespace {

using namespace stp;
using namespace stp::testing_support;

void fail(const std::string& how) {
  if (how == "throw") throw std::runtime_error("no luck");
  if (how == "input") throw InputError("mine.json", "steps", "too many", "use less");
  if (how == "exit") std::exit(0);
  if (how == "hang" || how == "silent") std::this_thread::sleep_for(std::chrono::hours(1));
}

void run(Processes& processes, double deadline_s, int argc, char** argv) {
  const int steps = std::atoi(argv[1]);
  const std::filesystem::path file = argv[2];
  const int failing = argc > 5 ? std::atoi(argv[4]) : -1;
  const auto training = small_training(4, DType::f64, {.tp = 2, .pp = 2});
  const auto backend = cpu::make_backend({.world_size = 4, .deadline_s = deadline_s}, &processes);
  Trainer trainer(*backend, program_of("stp", training.grid, 6, 4), training);
  std::string losses;
  for (int step = 0; step < steps; ++step) {
    const bool fails = step == 2 && failing == processes.index();
    const std::string how = fails ? argv[5] : "";
    if (how != "silent") fail(how);
    const double loss = trainer.step(random_samples(12, training.seq, training.model.vocab, step + 1)).loss;
    fail(how);
    for (const std::string& each : processes.gather(std::to_string(loss)))
      losses += (losses.empty() ? "" : ", ") + each;
    if (step == 0 && processes.is_root()) std::puts("training"), std::fflush(stdout);
  }
  if (!processes.is_root()) return;
  const std::filesystem::path unfinished = file.parent_path() / ("." + file.filename().string());
  std::ofstream(unfinished) << "[" << losses << "]\n";
  std::filesystem::rename(unfinished, file);
}

}  // namespace

int main(int argc, char** argv) {
  const double deadline_s = std::atof(argv[3]);
  std::unique_ptr<Processes> processes;
  try {
    processes = join_processes(deadline_s);
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  try {
    run(*processes, deadline_s, argc, argv);
  } catch (const InputError& error) {
    processes->abort(error.what(), 2);
  } catch (const std::exception& error) {
    processes->abort(error.what(), 1);
  }
  return 0;
}
