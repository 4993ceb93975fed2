// Runs one op of a unit: F, I, weight gradients, or a step of a part of F or I. It follows the component
// tables (lib/stp/model/components.h).
#pragma once

#include "stp/model/components.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// Whether the op is the first of a unit's F or I, not counting F's norm.
bool begins(const Op& op);
/// Runs a forward's norm, as work of `stream`, and takes ownership of `input`. Tensors that a backward
/// recomputes are kept for this pass only.
void norm_of_forward(RankState& rank, Stream& stream, const Op& op, Tensor input);
/// In I, as work of `stream`: recomputes the norm if the forward dropped its output.
void norm_again(RankState& rank, Stream& stream, const Op& op);

/// Takes the op's input from the rank's values and leaves its output there; with tp_overlap F leaves
/// Between::piece. Outputs are this rank's summands. The caller computes the loss (head.h).
class UnitRun {
 public:
  UnitRun(RankState& rank, const Op& op);

  void forward();
  void input_gradient();
  void weight_gradients();

 private:
  // One step of a part.
  struct Step {
    int index = 0;
    bool first = true, last = true;
  };

  [[nodiscard]] bool is_here(const Component& component, UnitPass pass) const {
    return op_.part == UnitPart::whole || component.part_of(pass, context_.strategy) == op_.part;
  }
  [[nodiscard]] const ParameterState& weight(const Component& linear) const {
    return with_role(parameters_, linear.weights->role);
  }
  [[nodiscard]] const ParameterState& bias(const Component& linear) const {
    return with_role(parameters_, linear.weights->bias_role());
  }
  [[nodiscard]] bool has_bias(const Component& linear) const {
    return linear.weights->has_bias(context_.training.model);
  }
  [[nodiscard]] const Component& first_linear() const {
    return *find_component(op_.unit, ComponentKind::linear);
  }
  [[nodiscard]] bool has_residual() const {
    return find_component(op_.unit, ComponentKind::residual) != nullptr;
  }
  [[nodiscard]] Tensor rows_for(const Tensor& in, const Tensor& out) const;
  Tensor normed();
  Tensor all_normed();
  Tensor& core_output();

  // What runs a component. Null: the kernels of its neighbours do, or the caller.
  using Run = void (UnitRun::*)(const Component&);
  struct Runs {
    Run forward = nullptr, backward = nullptr;
  };
  static const Runs& runs_of(const Component& component);

  // F.
  void norm_forward(const Component&);
  void first_linear_forward(const Component& linear);
  void make_output(const Component& linear);
  void make_output_columns(const Component& linear);
  void lookup_forward(const Component&);
  void core_forward(const Component&);
  void join_forward(const Component&);
  void activation_forward(const Component&);
  void drop_recomputed();

  // The norm of q, or of k, by heads: what it copies from q, k and v, and its own tensors.
  struct HeadNorm {
    int64_t column, columns;
    Tensor input, statistics, gain, gain_gradient;  // `input` has a row for each head
  };
  [[nodiscard]] HeadNorm head_norm(bool of_k);
  void query_key_norm_forward(const Component&);
  void query_key_norm_backward(const Component&);
  void rotary_forward(const Component&);
  [[nodiscard]] bool adds_positions() const {
    return context_.training.model.positions > 0 && with_role(parameters_, Role::first).shard == 0;
  }

  // I.
  void take_output_gradient();
  void first_linear_backward(const Component& linear);
  void second_linear_backward(const Component& linear);
  void run_again();
  void core_backward(const Component&);
  void rotary_backward(const Component&);
  void activation_backward(const Component&);

  void linear_gradient(const Component& linear, Tensor& out_gradient);
  void table_gradient(Tensor& out_gradient);

  Tensor make(MemoryKind kind, int64_t columns) { return context_.make(stream_, kind, rows_, columns); }
  void release(Tensor& tensor) { context_.release(stream_, tensor); }

  RankState& rank_;
  const Op& op_;
  const UnitContext& context_;
  const std::vector<ParameterState>& parameters_;
  SavedUnit& saved_;
  Stream& stream_;
  Kernels& kernels_;
  const bool overlaps_;  // the op is a step of a tensor-parallel ring or pipeline (tp_overlap)
  const int64_t rows_;   // between the linear layers
  Step step_;
  MemoryKind kind_ = MemoryKind::saved;  // of tensors that the component keeps
  Tensor gathered_;                      // with sequence parallelism: F's input
  Tensor output_, gradient_;             // F's output; in I the gradient of the norm's output
};

}  // namespace stp
