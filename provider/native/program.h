// A compiled subgraph for one set of input shapes: steps in order, each with its kernel and with
// the places of its operands, and how much memory a call needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "provider/native/device_program.h"
#include "provider/native/frame.h"
#include "provider/native/profile.h"

namespace onnx_iron {

// What holds a value: an input or an output of the subgraph, the call's arena, or bytes that the
// program owns.
enum class Place : int32_t { kInput = 0, kOutput = 1, kArena = 2, kConstant = 3 };

struct Location {
  Place place = Place::kArena;
  size_t index = 0;
  size_t offset = 0;
};

// A tensor at the border of the subgraph.
struct Border {
  DType dtype = DType::kFloat32;
  Shape shape;

  size_t bytes() const;
};

class Program {
 public:
  // The border is known before the steps; outputs are filled in by set_output.
  Program(std::vector<Border> inputs, size_t outputs);

  void set_output(size_t index, Border border);
  // Copies the bytes; returns the constant's index.
  size_t add_constant(const void* data, size_t bytes);
  // Returns the value's number. The name is the model's, for errors, or empty. Throws
  // std::invalid_argument where the value does not fit into its place.
  size_t add_value(std::string name, Operand operand, Location location);
  // Makes the step's kernel; kOmitted stands for an omitted input. `declared` is for profiles.
  void add_step(std::string name, std::string op, const std::vector<int32_t>& inputs,
                const std::vector<int32_t>& outputs, Attributes attributes, Work declared = {});
  // Allows output and input to be one buffer.
  void add_pair(size_t input, size_t output);
  // Another device's program that runs instead of the steps, for as long as it can.
  void set_device_program(int64_t number);
  // Checks that every output is declared. Nothing changes afterwards, and the program may run.
  void finish();

  static constexpr int32_t kOmitted = -1;

  const std::vector<Border>& inputs() const { return inputs_; }
  const std::vector<Border>& outputs() const { return outputs_; }

  // Runs the steps. `inputs` and `outputs` are the buffers at the border. An output's buffer may
  // overlap those of the inputs numbered in `changing` in any way, and no others. `run` records the
  // steps; null: nobody wants them.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
           const std::vector<size_t>& changing, FramePool& frames, Threads& threads,
           RecordedRun* run = nullptr) const;
  // The steps as a profile shows them.
  std::vector<ProfiledStep> profiled_steps() const;
  size_t step_count() const { return steps_.size(); }
  uint64_t number() const { return number_; }

  // About how many bytes it takes itself, without the frame of a call.
  size_t bytes() const { return bytes_; }

 private:
  struct Value {
    std::string name;
    Operand operand;
    Location location;
  };
  struct Step {
    std::string name;
    std::string op;
    std::unique_ptr<Kernel> kernel;
    size_t first_input = 0;
    size_t inputs = 0;
    size_t first_output = 0;
    size_t outputs = 0;
    Work declared;
  };

  // An error of a step's kernel, with the names of the node and of its inputs.
  std::string with_names(const std::string& message, const std::string& name, const std::string& op,
                         const int32_t* inputs, size_t count) const;
  bool is_pair(size_t input, size_t output) const;
  size_t count_bytes() const;
  // The outputs that overlap an input which may not be overwritten, or another output.
  std::vector<char> overlapped_outputs(const std::vector<const void*>& inputs,
                                       const std::vector<void*>& outputs,
                                       const std::vector<size_t>& changing) const;
  void bind(Frame& frame, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
            const std::vector<size_t>& changing) const;
  // around(step, its buffers) for each step, which runs it; an error gets the node's names.
  template <typename Around>
  void run_steps(const Frame& frame, Around&& around) const;

  std::vector<Border> inputs_;
  std::vector<Border> outputs_;
  std::vector<char> output_is_set_;
  std::vector<Value> values_;
  std::vector<std::unique_ptr<AlignedBytes>> constants_;
  std::vector<Step> steps_;
  std::vector<Location> step_inputs_;  // every step's inputs, one step after the other
  std::vector<int32_t> step_input_values_;
  std::vector<Location> step_outputs_;
  std::vector<int32_t> step_output_values_;
  std::vector<std::pair<size_t, size_t>> pairs_;  // input, output; sorted
  std::unique_ptr<DeviceProgram> device_program_;
  size_t arena_bytes_ = 0;
  size_t scratch_bytes_ = 0;
  size_t bytes_ = 0;
  const uint64_t number_;  // of all programs ever made, another
};

}  // namespace onnx_iron
