// A host without Python: an exported decode model in onnxruntime's C++ API, our operators as custom
// ops, its states in two buffers that take turns.
//
//   host DECODE.onnx LIBONNX_IRON.so TOKEN...
//
// prints the likeliest token after each. The model is exported with float32 states
// (onnx-iron export --dtype float32), and takes input_ids and position.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

namespace {

struct State {
  std::string past, present;
  std::vector<std::int64_t> shape;
  std::vector<float> now, next;
};

constexpr const char* kPast = "past.";

std::vector<std::int64_t> shape_of(const Ort::TypeInfo& type) {
  return type.GetTensorTypeAndShapeInfo().GetShape();
}

std::vector<State> states_of(const Ort::Session& session) {
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<State> states;
  for (std::size_t i = 0; i < session.GetInputCount(); ++i) {
    const std::string name = session.GetInputNameAllocated(i, allocator).get();
    if (name.rfind(kPast, 0) != 0) continue;
    State state{name,
                "present." + name.substr(std::string(kPast).size()),
                shape_of(session.GetInputTypeInfo(i)),
                {},
                {}};
    const std::int64_t size = std::accumulate(state.shape.begin(), state.shape.end(),
                                              std::int64_t{1}, std::multiplies<>());
    state.now.assign(size, 0.0f);
    state.next.assign(size, 0.0f);
    states.push_back(std::move(state));
  }
  return states;
}

template <typename T>
Ort::Value tensor(std::vector<T>& data, const std::vector<std::int64_t>& shape) {
  static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor<T>(memory, data.data(), data.size(), shape.data(), shape.size());
}

int run(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: host DECODE.onnx LIBONNX_IRON.so TOKEN...\n";
    return 2;
  }
  Ort::Env env;
  Ort::SessionOptions options;
  options.RegisterCustomOpsLibrary(argv[2]);
  Ort::Session session(env, argv[1], options);
  std::vector<State> states = states_of(session);
  for (int i = 3; i < argc; ++i) {
    std::vector<std::int32_t> token{std::stoi(argv[i])}, position{i - 3};
    Ort::IoBinding binding(session);
    binding.BindInput("input_ids", tensor(token, {1}));
    binding.BindInput("position", tensor(position, {}));
    for (State& state : states) {
      binding.BindInput(state.past.c_str(), tensor(state.now, state.shape));
      binding.BindOutput(state.present.c_str(), tensor(state.next, state.shape));
    }
    binding.BindOutput("logits", Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault));
    session.Run(Ort::RunOptions{}, binding);
    for (State& state : states) state.now.swap(state.next);
    // Values come in the order in which they were bound: the logits are last.
    const Ort::Value logits = std::move(binding.GetOutputValues().back());
    const float* first = logits.GetTensorData<float>();
    const auto size = logits.GetTensorTypeAndShapeInfo().GetElementCount();
    std::cout << token[0] << " -> " << std::max_element(first, first + size) - first << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "host: " << error.what() << "\n";
    return 1;
  }
}
