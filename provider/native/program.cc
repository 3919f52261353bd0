#include "provider/native/program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "provider/native/status.h"

namespace onnx_iron {
namespace {

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

size_t bytes_of(DType dtype, const Shape& shape) {
  return static_cast<size_t>(element_count(shape)) * size_of(dtype);
}

// Gives the frame back whatever happens.
class Lease {
 public:
  Lease(FramePool& pool, std::unique_ptr<Frame> frame) : pool_(pool), frame_(std::move(frame)) {}
  ~Lease() { pool_.give(std::move(frame_)); }
  Frame& frame() { return *frame_; }

 private:
  FramePool& pool_;
  std::unique_ptr<Frame> frame_;
};

}  // namespace

size_t Border::bytes() const { return bytes_of(dtype, shape); }

Program::Program(std::vector<Border> inputs, size_t outputs)
    : inputs_(std::move(inputs)),
      outputs_(outputs),
      output_is_set_(outputs),
      pairs_(inputs_.size() * outputs) {}

void Program::set_output(size_t index, Border border) {
  if (index >= outputs_.size()) throw std::invalid_argument("program: no such output");
  outputs_[index] = std::move(border);
  output_is_set_[index] = 1;
}

size_t Program::add_constant(const void* data, size_t bytes) {
  auto constant = std::make_unique<AlignedBytes>(bytes);
  if (bytes > 0) std::memcpy(constant->data(), data, bytes);
  constants_.push_back(std::move(constant));
  return constants_.size() - 1;
}

size_t Program::add_value(Operand operand, Location location) {
  size_t end = location.offset + bytes_of(operand.dtype, operand.shape);
  size_t limit = end;
  switch (location.place) {
    case Place::kInput:
      limit = location.index < inputs_.size() ? inputs_[location.index].bytes() : 0;
      break;
    case Place::kOutput:
      limit = location.index < outputs_.size() && output_is_set_[location.index]
                  ? outputs_[location.index].bytes()
                  : 0;
      break;
    case Place::kConstant:
      limit = location.index < constants_.size() ? constants_[location.index]->size() : 0;
      break;
    case Place::kArena:
      arena_bytes_ = std::max(arena_bytes_, end);
      break;
    default:
      throw std::invalid_argument("program: no such place");
  }
  if (end < location.offset || end > limit) {
    throw std::invalid_argument("program: a value of " + std::to_string(end - location.offset) +
                                " bytes at offset " + std::to_string(location.offset) +
                                " does not fit into " + std::to_string(limit) + " bytes");
  }
  values_.push_back({std::move(operand), location});
  return values_.size() - 1;
}

void Program::add_step(std::string name, std::string op, const std::vector<int32_t>& inputs,
                       const std::vector<int32_t>& outputs, Attributes attributes) {
  Node node;
  node.op = op;
  node.attributes = std::move(attributes);
  auto value = [&](int32_t number) -> const Value& {
    if (number < 0 || static_cast<size_t>(number) >= values_.size()) {
      throw std::invalid_argument("program: a step of an unknown value");
    }
    return values_[static_cast<size_t>(number)];
  };
  Step step;
  step.first_input = step_inputs_.size();
  step.first_output = step_outputs_.size();
  for (int32_t number : inputs) {
    bool present = number != kOmitted;
    node.inputs.push_back(present ? value(number).operand : Operand{{}, {}, false});
    step_inputs_.push_back(present ? value(number).location : Location{});
    step_input_present_.push_back(present);
  }
  for (int32_t number : outputs) {
    const Value& output = value(number);
    if (output.location.place == Place::kInput || output.location.place == Place::kConstant) {
      throw std::invalid_argument("program: a step writes into an input or a constant");
    }
    node.outputs.push_back(output.operand);
    step_outputs_.push_back(output.location);
  }
  try {
    step.kernel = make_kernel(node);
  } catch (const std::exception& error) {
    throw std::invalid_argument(with_node_name(error.what(), op, name));
  }
  scratch_bytes_ = std::max(scratch_bytes_, step.kernel->scratch_bytes());
  step.name = std::move(name);
  step.op = std::move(op);
  steps_.push_back(std::move(step));
}

void Program::add_pair(size_t input, size_t output) {
  if (input >= inputs_.size() || output >= outputs_.size() ||
      inputs_[input].bytes() != outputs_[output].bytes()) {
    throw std::invalid_argument("program: an input and an output that cannot share a buffer");
  }
  pairs_[input * outputs_.size() + output] = 1;
}

void Program::set_device_program(int64_t number) {
  device_program_ = std::make_unique<DeviceProgram>(number);
}

void Program::finish() {
  if (!std::all_of(output_is_set_.begin(), output_is_set_.end(), [](char set) { return set; })) {
    throw std::invalid_argument("program: an output was not declared");
  }
}

bool Program::is_pair(size_t input, size_t output) const {
  return pairs_[input * outputs_.size() + output] != 0;
}

void Program::bind(Frame& frame, const std::vector<const void*>& inputs,
                   const std::vector<void*>& outputs, const std::vector<size_t>& changing) const {
  frame.inputs.clear();
  frame.delayed.clear();
  std::vector<void*> targets = outputs;
  for (size_t j = 0; j < outputs.size(); ++j) {
    for (size_t k = 0; k < j; ++k) {
      if (overlap(outputs[k], outputs_[k].bytes(), outputs[j], outputs_[j].bytes())) {
        throw std::invalid_argument("onnx-iron: outputs " + std::to_string(k) + " and " +
                                    std::to_string(j) +
                                    " share memory; bind each to a buffer of its own");
      }
    }
    bool in_place_is_safe = std::all_of(changing.begin(), changing.end(), [&](size_t i) {
      return !overlap(inputs[i], inputs_[i].bytes(), outputs[j], outputs_[j].bytes()) ||
             (inputs[i] == outputs[j] && is_pair(i, j));
    });
    if (in_place_is_safe) continue;
    frame.delayed.push_back({j, std::make_unique<AlignedBytes>(outputs_[j].bytes())});
    targets[j] = frame.delayed.back().bytes->data();
  }

  auto address = [&](const Location& at) -> std::byte* {
    switch (at.place) {
      case Place::kInput:
        return static_cast<std::byte*>(const_cast<void*>(inputs[at.index])) + at.offset;
      case Place::kOutput:
        return static_cast<std::byte*>(targets[at.index]) + at.offset;
      case Place::kConstant:
        return constants_[at.index]->data() + at.offset;
      default:
        return frame.arena.data() + at.offset;
    }
  };
  frame.step_inputs.resize(step_inputs_.size());
  for (size_t i = 0; i < step_inputs_.size(); ++i) {
    frame.step_inputs[i] = step_input_present_[i] ? address(step_inputs_[i]) : nullptr;
  }
  frame.step_outputs.resize(step_outputs_.size());
  for (size_t i = 0; i < step_outputs_.size(); ++i) {
    frame.step_outputs[i] = address(step_outputs_[i]);
  }
  frame.inputs = inputs;
  frame.outputs = outputs;
}

void Program::run_steps(const Frame& frame, Threads& threads) const {
  for (const Step& step : steps_) {
    Buffers buffers{frame.step_inputs.data() + step.first_input,
                    frame.step_outputs.data() + step.first_output, frame.scratch.data()};
    try {
      step.kernel->run(buffers, threads);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(with_node_name(error.what(), step.op, step.name));
    } catch (const std::exception& error) {
      throw std::runtime_error(with_node_name(error.what(), step.op, step.name));
    }
  }
}

void Program::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                  const std::vector<size_t>& changing, Threads& threads) const {
  if (device_program_ != nullptr && device_program_->run(inputs, outputs)) return;
  std::unique_ptr<Frame> free_frame = frames_.take();
  if (free_frame == nullptr) free_frame = std::make_unique<Frame>(arena_bytes_, scratch_bytes_);
  Lease lease(frames_, std::move(free_frame));
  Frame& frame = lease.frame();
  if (frame.inputs != inputs || frame.outputs != outputs) bind(frame, inputs, outputs, changing);
  run_steps(frame, threads);
  for (const Frame::Delayed& delayed : frame.delayed) {
    std::memcpy(outputs[delayed.output], delayed.bytes->data(), outputs_[delayed.output].bytes());
  }
}

}  // namespace onnx_iron
