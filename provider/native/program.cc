#include "provider/native/program.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "provider/native/signatures.h"
#include "provider/native/status.h"

namespace onnx_iron {
namespace {

size_t bytes_of(DType dtype, const Shape& shape) {
  return static_cast<size_t>(element_count(shape)) * size_of(dtype);
}

// Of a kernel without its tables, with what the allocator adds.
constexpr size_t kKernelBytes = 256;

std::atomic<uint64_t> programs_made{Frame::kNoProgram};

size_t bytes_of(const Shape& shape) { return shape.capacity() * sizeof(int64_t); }

template <typename Item>
size_t list_bytes(const std::vector<Item>& items) {
  return items.capacity() * sizeof(Item);
}

// A buffer at the border.
struct Range {
  uintptr_t begin, end;
  size_t index;

  bool operator<(const Range& other) const { return begin < other.begin; }
};

Range range_of(const void* data, size_t bytes, size_t index) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes, index};
}

}  // namespace

size_t Border::bytes() const { return bytes_of(dtype, shape); }

Program::Program(std::vector<Border> inputs, size_t outputs)
    : inputs_(std::move(inputs)),
      outputs_(outputs),
      output_is_set_(outputs),
      number_(++programs_made) {}

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

size_t Program::add_value(std::string name, Operand operand, Location location) {
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
  values_.push_back({std::move(name), std::move(operand), location});
  return values_.size() - 1;
}

void Program::add_step(std::string name, std::string op, const std::vector<int32_t>& inputs,
                       const std::vector<int32_t>& outputs, Attributes attributes, Work declared) {
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
  step.inputs = inputs.size();
  step.first_output = step_outputs_.size();
  step.outputs = outputs.size();
  step.declared = declared;
  for (int32_t number : inputs) {
    bool present = number != kOmitted;
    node.inputs.push_back(present ? value(number).operand : Operand{{}, {}, false});
    step_inputs_.push_back(present ? value(number).location : Location{});
    step_input_values_.push_back(number);
  }
  for (int32_t number : outputs) {
    const Value& output = value(number);
    if (output.location.place == Place::kInput || output.location.place == Place::kConstant) {
      throw std::invalid_argument("program: a step writes into an input or a constant");
    }
    node.outputs.push_back(output.operand);
    step_outputs_.push_back(output.location);
    step_output_values_.push_back(number);
  }
  try {
    step.kernel = make_kernel(node);
  } catch (const std::exception& error) {
    throw std::invalid_argument(with_names(error.what(), name, op, inputs.data(), inputs.size()));
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
  pairs_.emplace_back(input, output);
}

void Program::set_device_program(int64_t number) {
  device_program_ = std::make_unique<DeviceProgram>(number);
}

void Program::finish() {
  if (!std::all_of(output_is_set_.begin(), output_is_set_.end(), [](char set) { return set; })) {
    throw std::invalid_argument("program: an output was not declared");
  }
  std::sort(pairs_.begin(), pairs_.end());
  bytes_ = count_bytes();
}

size_t Program::count_bytes() const {
  size_t bytes = sizeof *this + list_bytes(inputs_) + list_bytes(outputs_) +
                 list_bytes(output_is_set_) + list_bytes(values_) + list_bytes(constants_) +
                 list_bytes(steps_) + list_bytes(step_inputs_) + list_bytes(step_input_values_) +
                 list_bytes(step_outputs_) + list_bytes(step_output_values_) + list_bytes(pairs_);
  for (const Border& border : inputs_) bytes += bytes_of(border.shape);
  for (const Border& border : outputs_) bytes += bytes_of(border.shape);
  for (const Value& value : values_) bytes += bytes_of(value.operand.shape) + value.name.capacity();
  for (const auto& constant : constants_) bytes += constant->size() + kAlignment;
  for (const Step& step : steps_) {
    bytes += step.name.capacity() + step.op.capacity() + kKernelBytes + step.kernel->table_bytes();
  }
  // The device's buffers hold what is made in a call; its weights are not the program's own.
  if (device_program_ != nullptr) {
    bytes += arena_bytes_;
    for (const Border& output : outputs_) bytes += output.bytes();
  }
  return bytes;
}

std::string Program::with_names(const std::string& message, const std::string& name,
                                const std::string& op, const int32_t* inputs, size_t count) const {
  auto signature = std::find_if(signatures().begin(), signatures().end(),
                                [&](const Signature& declared) { return declared.op == op; });
  std::string names;
  for (size_t i = 0; i < count; ++i) {
    if (inputs[i] == kOmitted || values_[static_cast<size_t>(inputs[i])].name.empty()) continue;
    names += names.empty() ? "" : ", ";
    if (signature != signatures().end() && i < signature->inputs.size()) {
      names += std::string(signature->inputs[i].name) + " is ";
    }
    names += "'" + values_[static_cast<size_t>(inputs[i])].name + "'";
  }
  std::string whole = with_node_name(message, op, name);
  return names.empty() ? whole : whole + "; of its inputs, " + names;
}

bool Program::is_pair(size_t input, size_t output) const {
  return std::binary_search(pairs_.begin(), pairs_.end(), std::pair(input, output));
}

std::vector<char> Program::overlapped_outputs(const std::vector<const void*>& inputs,
                                              const std::vector<void*>& outputs,
                                              const std::vector<size_t>& changing) const {
  std::vector<Range> ranges;
  for (size_t j = 0; j < outputs.size(); ++j) {
    if (size_t bytes = outputs_[j].bytes()) ranges.push_back(range_of(outputs[j], bytes, j));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t k = 1; k < ranges.size(); ++k) {
    if (ranges[k].begin >= ranges[k - 1].end) continue;
    auto [first, second] = std::minmax(ranges[k - 1].index, ranges[k].index);
    throw std::invalid_argument("onnx-iron: outputs " + std::to_string(first) + " and " +
                                std::to_string(second) +
                                " share memory; bind each to a buffer of its own");
  }
  std::vector<char> overlapped(outputs.size());
  for (size_t i : changing) {
    Range input = range_of(inputs[i], inputs_[i].bytes(), i);
    if (input.begin == input.end) continue;
    // The outputs lie apart, so the first that ends behind the input's begin is the first to meet.
    auto met =
        std::upper_bound(ranges.begin(), ranges.end(), input.begin,
                         [](uintptr_t begin, const Range& output) { return begin < output.end; });
    for (; met != ranges.end() && met->begin < input.end; ++met) {
      bool in_place = input.begin == met->begin && is_pair(i, met->index);
      if (!in_place) overlapped[met->index] = 1;
    }
  }
  return overlapped;
}

void Program::bind(Frame& frame, const std::vector<const void*>& inputs,
                   const std::vector<void*>& outputs, const std::vector<size_t>& changing) const {
  frame.program = Frame::kNoProgram;
  frame.delayed.clear();
  std::vector<void*> targets = outputs;
  std::vector<char> overlapped = overlapped_outputs(inputs, outputs, changing);
  for (size_t j = 0; j < outputs.size(); ++j) {
    if (!overlapped[j]) continue;
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
        return frame.arena() + at.offset;
    }
  };
  frame.step_inputs.resize(step_inputs_.size());
  for (size_t i = 0; i < step_inputs_.size(); ++i) {
    frame.step_inputs[i] = step_input_values_[i] != kOmitted ? address(step_inputs_[i]) : nullptr;
  }
  frame.step_outputs.resize(step_outputs_.size());
  for (size_t i = 0; i < step_outputs_.size(); ++i) {
    frame.step_outputs[i] = address(step_outputs_[i]);
  }
  frame.inputs = inputs;
  frame.outputs = outputs;
  frame.program = number_;
}

template <typename Around>
void Program::run_steps(const Frame& frame, Around&& around) const {
  for (const Step& step : steps_) {
    Buffers buffers{frame.step_inputs.data() + step.first_input,
                    frame.step_outputs.data() + step.first_output, frame.scratch()};
    auto named = [&](const std::exception& error) {
      return with_names(error.what(), step.name, step.op,
                        step_input_values_.data() + step.first_input, step.inputs);
    };
    try {
      around(step, buffers);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(named(error));
    } catch (const std::exception& error) {
      throw std::runtime_error(named(error));
    }
  }
}

void Program::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                  const std::vector<size_t>& changing, FramePool& frames, Threads& threads,
                  RecordedRun* run) const {
  if (run != nullptr) run->is_of(*this);
  if (device_program_ != nullptr && device_program_->run(inputs, outputs)) {
    if (run != nullptr) run->was_on_device();
    return;
  }
  FramePool::Lease lease(frames, number_);
  Frame& frame = *lease;
  frame.reserve(arena_bytes_, scratch_bytes_);
  if (frame.program != number_ || frame.inputs != inputs || frame.outputs != outputs) {
    bind(frame, inputs, outputs, changing);
  }
  if (run == nullptr) {
    run_steps(frame, [&](const Step& step, const Buffers& buffers) {
      step.kernel->run(buffers, threads);
    });
  } else {
    run_steps(frame, [&](const Step& step, const Buffers& buffers) {
      CountedThreads counted(threads);
      int64_t begin = run->now();
      step.kernel->run(buffers, counted);
      int64_t end = run->now();
      run->add({begin, end, step.kernel->work(buffers, step.declared), counted.used()});
    });
  }
  for (const Frame::Delayed& delayed : frame.delayed) {
    std::memcpy(outputs[delayed.output], delayed.bytes->data(), outputs_[delayed.output].bytes());
  }
}

std::vector<ProfiledStep> Program::profiled_steps() const {
  std::vector<ProfiledStep> all;
  for (const Step& step : steps_) {
    ProfiledStep made{step.op, step.name, {}, {}};
    for (size_t i = 0; i < step.inputs; ++i) {
      int32_t number = step_input_values_[step.first_input + i];
      made.inputs.push_back(number == kOmitted ? Operand{{}, {}, false}
                                               : values_[static_cast<size_t>(number)].operand);
    }
    for (size_t i = 0; i < step.outputs; ++i) {
      int32_t number = step_output_values_[step.first_output + i];
      made.outputs.push_back(values_[static_cast<size_t>(number)].operand);
    }
    all.push_back(std::move(made));
  }
  return all;
}

}  // namespace onnx_iron
