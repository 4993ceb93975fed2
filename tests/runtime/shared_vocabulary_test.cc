// Head and embedding in shares of all pipeline ranks train like one rank, with the bytes that are declared.
#include <gtest/gtest.h>

#include <string>

#include "runtime/checked_step.h"
#include "stp/schedule/share_vocabulary.h"
#include "support/effort.h"
#include "support/programs.h"

namespace stp {
namespace {

using namespace testing_support;

// Head and embedding in shares of all ranks: with one barrier and two, with chunks of no layers at the ends,
// and with what users combine them with. Three ranks: their shares are no powers of two.
const char* const kShared[] = {"vocab-1", "vocab-2", "interlaced"};
TEST(SharedVocabulary, OfEverySchedule) {
  int cases = 0;
  for (const char* schedule : kShared)
    for (const int pp : {1, 2, 3, 4})
      for (const int tp : {1, 2})
        for (const int m : {1, 2, 2 * pp + 3})
          if (kStride == 1 || cases++ % 5 == 0)
            expect_step({schedule, tp, 1, pp, m}, m == 2 ? DType::f32 : DType::f64);
}
TEST(SharedVocabulary, OnAV) {  // backwards in one and in two
  for (const char* rank : {"E0.0 E0.1 F0.0 F0.1 F1.0 S0.0 F1.1 T0.0 S0.1 B1.0 T0.1 B1.1 B0.0 G0.0 B0.1 G0.1",
                           "E0.0 F0.0 F1.0 S0.0 E0.1 I1.0 F0.1 U0.0 W1.0 F1.1 I0.0 S0.1 G0.0 I1.1 W0.0 I0.1 "
                           "U0.1 W0.1 G0.1 W1.1"}) {
    const std::string text = std::string("# placement v\n") + rank + "\n" + rank + "\n";
    for (const int tp : {1, 2})
      for (const std::vector<int>& layers : {std::vector{1, 2, 0, 1}, {0, 1, 1, 0}})
        expect_step_of(schedule_from_text(text, "v.txt"), {"by hand", tp, 1, 2, 2}, DType::f64, {}, layers);
  }
}
// Orders that are made to share it: every schedule's that can. With replicas, chunk 0 of rank 0 has no
// layers: its last backward, of no ops, may come after those of the head.
TEST(SharedVocabulary, OfEveryOtherOrder) {
  Sample sampled;
  int cases = 0;
  for (const Generator* generator : generators())
    for (const int pp : {2, 3})
      for (const Vocabulary how : {Vocabulary::one_barrier, Vocabulary::two_barriers}) {
        const int tp = 1 + cases++ / 3 % 2, dp = 3 - tp, m = 2 * pp;
        if (generator->name == std::string("dualpipe") || !sampled()) continue;
        const Schedule schedule = make_schedule(*generator, {pp, m});
        if (!is_single_and_whole(schedule)) continue;
        std::vector<int> layers(schedule.placement.stages(), 1);
        layers.front() = tp == 1 ? 0 : 2;
        layers.back() = tp - 1;
        const Schedule shared = share_vocabulary(schedule, how);
        expect_step_of(shared, {shared.name, tp, dp, pp, m}, DType::f64, {}, layers);
      }
}
TEST(SharedVocabulary, OfUnevenAndEmptyChunks) {
  for (const char* schedule : kShared)
    for (const std::vector<int>& layers : {std::vector{0, 2, 0}, {3, 0, 1}, {0, 0, 1}, {1, 0, 0}, {2, 1, 0}})
      for (const int tp : {1, 2}) expect_step({schedule, tp, 1, 3, 7}, DType::f64, {}, layers);
}
TEST(SharedVocabulary, WithEveryOption) {
  Sample sampled;
  size_t cases = 0;
  for (const char* schedule : kShared)
    for (const Release release : kReleases)
      for (const bool sequence_parallel : {false, true})
        for (const int cp : {1, 2})
          if (const auto& [name, recompute] = kRecomputes[cases++ % std::size(kRecomputes)]; sampled())
            expect_step({schedule, 2, cp == 1 ? 2 : 1, 3, 4}, cp == 1 ? DType::f64 : DType::f32,
                        {.order = BackwardOrder::megatron,
                         .release = release,
                         .sequence_parallel = sequence_parallel,
                         .recompute = recompute,
                         .context_parallel = cp,
                         .offload = cases % 3 == 0 ? 0.6 : 0},
                        {2, 0, 1});
}

// Of these, each rank has a summand of the gradients of the positions and of the last norm's bias.
TEST(SharedVocabulary, OfOtherModels) {
  for (const char* schedule : kShared)
    for (const int tp : {1, 2})
      for (Variant variant : of_other_models()) {
        variant.model.tied = false;
        expect_step({schedule, tp, 1, 3, 4}, DType::f64, variant);
      }
}

}  // namespace
}  // namespace stp
