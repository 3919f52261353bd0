#include "provider/native/subgraph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "provider/native/planner.h"
#include "provider/native/pool_threads.h"
#include "provider/native/status.h"

namespace onnx_iron {

std::atomic<size_t> programs_compiled{0};

namespace {

DType dtype_of(const ValueType& type) { return static_cast<DType>(type.dtype); }

}  // namespace

Subgraph::Subgraph(std::string question, const std::vector<const ort::ValueInfo*>& inputs,
                   size_t outputs, std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)),
      number_(shared_->programs.new_number()),
      question_(std::move(question)),
      outputs_(outputs) {
  CreateState = [](ort::ComputeTable* self, ort::ComputeContext*, void** state) -> ort::Status* {
    *state = self;
    return nullptr;
  };
  Compute = [](ort::ComputeTable* self, void*, ort::KernelContext* context) {
    return guarded([&] { static_cast<Subgraph*>(self)->run(context); });
  };
  ReleaseState = [](ort::ComputeTable*, void*) {};

  bool is_static = true;
  std::vector<Border> borders;
  for (const ort::ValueInfo* input : inputs) {
    ValueType type = type_of(input);
    is_static = is_static && type.is_static();
    borders.push_back({dtype_of(type), type.dims});
    types_.push_back(std::move(type));
    names_.push_back(name_of(input));
    if (is_constant(input)) {
      constant_inputs_.push_back(names_.size() - 1);
    } else {
      changing_inputs_.push_back(names_.size() - 1);
    }
  }
  try {
    if (is_static) {
      static_program_ = compile(std::move(borders));
    } else {
      prepare(borders);
    }
  } catch (const Interrupted&) {
    // The session is about to be thrown away; if it is not, the first call compiles.
  }
}

namespace {

std::string with_shapes(const std::string& question, const std::vector<Border>& inputs) {
  JsonWriter shapes;
  shapes.begin_array();
  for (const Border& input : inputs) shapes.array(input.shape);
  shapes.end_array();
  return question + ",\"shapes\":" + shapes.text() + "}";
}

}  // namespace

void Subgraph::prepare(const std::vector<Border>& inputs) {
  if (!std::all_of(types_.begin(), types_.end(), [](const ValueType& t) { return t.has_rank; })) {
    return;
  }
  Request request;
  request.question = with_shapes(question_, inputs);
  request.logger = shared_->logger;
  ask(request);
  if (request.recipe != nullptr) recipes_.push_back(std::move(request.recipe));
}

std::shared_ptr<const Program> Subgraph::make(const std::vector<Border>& inputs) {
  std::vector<std::shared_ptr<const Recipe>> recipes;
  {
    std::lock_guard lock(recipes_mutex_);
    recipes = recipes_;
  }
  for (auto recipe = recipes.rbegin(); recipe != recipes.rend(); ++recipe) {
    if (std::unique_ptr<Program> made = (*recipe)->make(inputs, outputs_)) return made;
  }
  return nullptr;
}

std::shared_ptr<const Program> Subgraph::compile(std::vector<Border> inputs) {
  if (std::shared_ptr<const Program> made = make(inputs)) {
    ++programs_compiled;
    return made;
  }
  Request request;
  request.question = with_shapes(question_, inputs);
  request.program = std::make_unique<Program>(std::move(inputs), outputs_);
  request.logger = shared_->logger;
  ask(request);
  request.program->finish();
  ++programs_compiled;
  if (request.recipe != nullptr) {
    std::lock_guard lock(recipes_mutex_);
    if (recipes_.size() == kMaxRecipes) recipes_.erase(recipes_.begin());
    recipes_.push_back(std::move(request.recipe));
  }
  return std::move(request.program);
}

bool Subgraph::fits(const Program& program, const std::vector<Input>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = program.inputs()[i].shape;
    if (inputs[i].rank != shape.size() || !std::equal(shape.begin(), shape.end(), inputs[i].dims)) {
      return false;
    }
  }
  return true;
}

std::shared_ptr<const Program> Subgraph::program_for(const std::vector<Input>& inputs) {
  // onnxruntime takes other shapes than the declared ones, too: (1,) for (), say, and whatever an
  // operator before this subgraph made. They get a program of their own.
  if (static_program_ != nullptr && fits(*static_program_, inputs)) return static_program_;
  ProgramCache::Key key{number_};
  for (size_t i : changing_inputs_) {
    key.push_back(static_cast<int64_t>(inputs[i].rank));
    key.insert(key.end(), inputs[i].dims, inputs[i].dims + inputs[i].rank);
  }
  if (std::shared_ptr<const Program> known = shared_->programs.find(key)) return known;
  std::vector<Border> borders;
  for (size_t i = 0; i < inputs.size(); ++i) {
    borders.push_back(
        {dtype_of(types_[i]), Shape(inputs[i].dims, inputs[i].dims + inputs[i].rank)});
  }
  std::shared_ptr<const Program> program = compile(std::move(borders));
  shared_->programs.add(key, program);
  return program;
}

void Subgraph::read_input(const ort::KernelContext* context, size_t index, Input& input,
                          const void*& data) const {
  const ort::Value* value = nullptr;
  check(ort::KernelContext_GetInput(context, index, &value));
  if (value == nullptr) {
    throw std::invalid_argument("onnx-iron: '" + names_[index] + "' has no value");
  }
  int32_t dtype = 0;
  check(ort::GetTensorElementTypeAndShapeDataReference(value, &dtype, &input.dims, &input.rank));
  if (dtype != types_[index].dtype) {
    throw std::invalid_argument("onnx-iron: '" + names_[index] + "' has dtype " +
                                std::to_string(dtype) + ", expected " +
                                std::to_string(types_[index].dtype));
  }
  check(ort::GetTensorData(value, &data));
}

void Subgraph::run(ort::KernelContext* context) {
  std::call_once(constants_read_, [&] {
    std::vector<const void*> constants(types_.size());
    std::vector<Input> shapes(types_.size());
    for (size_t i : constant_inputs_) read_input(context, i, shapes[i], constants[i]);
    constants_ = std::move(constants);
    constant_shapes_ = std::move(shapes);
  });
  std::vector<const void*> inputs = constants_;
  std::vector<Input> shapes = constant_shapes_;
  for (size_t i : changing_inputs_) read_input(context, i, shapes[i], inputs[i]);
  std::shared_ptr<const Program> program = program_for(shapes);

  std::vector<void*> outputs(outputs_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape& shape = program->outputs()[i].shape;
    ort::Value* value = nullptr;
    check(ort::KernelContext_GetOutput(context, i, shape.data(), shape.size(), &value));
    check(ort::GetTensorMutableData(value, &outputs[i]));
  }
  PoolThreads threads(context);
  std::optional<RecordedRun> recorded;
  if (shared_->recording) recorded.emplace(*shared_->recording, shared_->session, number_);
  program->run(inputs, outputs, changing_inputs_, shared_->frames, threads,
               recorded ? &*recorded : nullptr);
}

}  // namespace onnx_iron
