// The choices of a scenario's fields, by their words in scenarios.
#pragma once

#include <array>
#include <string>

#include "scenario.h"
#include "stp/base/json_input.h"
#include "stp/device/element_type.h"
#include "stp/model/work.h"
#include "stp/program/lower.h"
#include "stp/schedule/share_vocabulary.h"

namespace stp {

template <typename Choice>
struct Named {
  const char* name;
  Choice choice;
};
inline constexpr Named<Release> kReleases[] = {{"chain", Release::chain},
                                               {"block", Release::block},
                                               {"released", Release::released},
                                               {"blocking", Release::blocking},
                                               {"megatron", Release::megatron},
                                               {"megatron-0.18", Release::megatron_0_18},
                                               {"megatron-batched", Release::megatron_batched}};
inline constexpr Named<BackwardOrder> kBackwards[] = {{"suite", BackwardOrder::suite},
                                                      {"megatron", BackwardOrder::megatron}};
inline constexpr Named<BraidPolicy> kBraids[] = {{"static", BraidPolicy::static_merge},
                                                 {"sequential", BraidPolicy::sequential},
                                                 {"timed", BraidPolicy::timed},
                                                 {"paired", BraidPolicy::paired}};
inline constexpr Named<LayerSplit> kSplits[] = {
    {"even", LayerSplit::even}, {"paper", LayerSplit::paper}, {"balanced", LayerSplit::balanced}};
inline constexpr Named<TpOverlap> kTpOverlaps[] = {{"none", TpOverlap::none},
                                                   {"megatron", TpOverlap::megatron},
                                                   {"domino", TpOverlap::domino},
                                                   {"flux", TpOverlap::flux}};
inline constexpr Named<CpMethod> kCpMethods[] = {{"ring", CpMethod::ring},
                                                 {"all-to-all", CpMethod::all_to_all}};
inline constexpr Named<Vocabulary> kVocabularies[] = {
    {method_name(Vocabulary::whole), Vocabulary::whole},
    {method_name(Vocabulary::two_barriers), Vocabulary::two_barriers},
    {method_name(Vocabulary::one_barrier), Vocabulary::one_barrier}};
inline constexpr Named<FreedAt> kFreedAt[] = {{"W", FreedAt::W}, {"I", FreedAt::I}, {"both", FreedAt::both}};
inline constexpr Named<DType> kTypes[] = {
    {"float32", DType::f32}, {"float64", DType::f64}, {"bfloat16", DType::bf16}};
inline constexpr Named<bool> kGradients[] = {{"float32", false}, {"model", true}};
inline constexpr Named<Implementation> kImplementations[] = {
    {"megatron", Implementation::megatron},
    {"suite", Implementation::suite},
    {"megatron-2022", Implementation::megatron_2022},
    {"megatron-te", Implementation::megatron_te},
    {"megatron-te-2.18", Implementation::megatron_te_2_18}};

/// By Strategy::ring_scatter, of proj and fc2.
inline constexpr Named<bool> kScatterMethods[] = {{"pipeline", false}, {"ring_exchange", true}};
inline constexpr const char* kScatterMethodFields[] = {"proj_method", "fc2_method"};

/// The GEMMs of Recipe::OverlapSms, of attn and mlp.
struct NamedOverlapSms {
  const char* name[2];
  std::array<int, 2> Recipe::OverlapSms::*sms;
};
inline constexpr NamedOverlapSms kOverlapSms[] = {
    {{"proj_forward", "fc2_forward"}, &Recipe::OverlapSms::forward},
    {{"qkv_input_gradient", "fc1_input_gradient"}, &Recipe::OverlapSms::input_gradient},
    {{"qkv_weight_gradient", "fc1_weight_gradient"}, &Recipe::OverlapSms::weight_gradient}};

template <typename Choice, typename Choices>
std::string word_of(Choice choice, const Choices& choices) {
  for (const auto& each : choices)
    if (each.choice == choice) return each.name;
  return "";
}

template <typename Choices>
std::vector<std::string> words_of(const Choices& choices) {
  std::vector<std::string> words;
  for (const auto& each : choices) words.emplace_back(each.name);
  return words;
}

/// N of "block-N"; 0 for any other word.
inline int block_layers(const std::string& word) {
  const std::string block = "block-";
  const bool is = word.starts_with(block) && word.size() > block.size() && word.size() <= block.size() + 4 &&
                  word.find_first_not_of("0123456789", block.size()) == std::string::npos;
  return is && word[block.size()] != '0' ? std::stoi(word.substr(block.size())) : 0;
}

inline std::string word_of(const Recompute& recompute) {
  if (recompute.first > 0) return "block-" + std::to_string(recompute.first);
  return recompute == kLayernorm ? "layernorm" : word_of(recompute, kRecomputes);
}

/// `others`: words that the caller has read already, for the message.
template <typename Choice, typename Choices>
Choice choose(JsonInput& input, const std::string& key, Choice fallback, const Choices& choices,
              const std::string& others = "") {
  const std::string word = input.string_or(key, word_of(fallback, choices));
  for (const auto& each : choices)
    if (word == each.name) return each.choice;
  throw input.error(key, "\"" + word + "\" is not a choice",
                    "write one of " + joined(choices, [](const auto& each) { return each.name; }) + others);
}

}  // namespace stp
