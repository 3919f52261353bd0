// A fused node: its programs, one for each set of input shapes it has met, and its runs.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "provider/native/describe.h"
#include "provider/native/frame.h"
#include "provider/native/ort_api.h"
#include "provider/native/profile.h"
#include "provider/native/program.h"
#include "provider/native/program_cache.h"
#include "provider/native/recipe.h"

namespace onnx_iron {

// How many programs were compiled in this process.
extern std::atomic<size_t> programs_compiled;

// What the subgraphs of a session share.
struct Shared {
  Shared(size_t program_cache_bytes, const ort::Logger* logger,
         std::shared_ptr<Recording> recording, int64_t session)
      : programs(program_cache_bytes),
        logger(logger),
        recording(std::move(recording)),
        session(session) {}

  ProgramCache programs;
  FramePool frames;
  // The session's; null where it does not want remarks.
  const ort::Logger* logger;
  // Of every call; null where it is not profiled.
  std::shared_ptr<Recording> recording;
  int64_t session;
};

class Subgraph : public ort::ComputeTable {
 public:
  // `question` is the JSON object of a "compile" question without its end; the shapes follow it.
  // With static shapes it is compiled here, otherwise planned for symbols, and made at a call.
  Subgraph(std::string question, const std::vector<const ort::ValueInfo*>& inputs, size_t outputs,
           std::shared_ptr<Shared> shared);

  void run(ort::KernelContext* context);

 private:
  // An input as it comes with a call. onnxruntime owns the dims.
  struct Input {
    const int64_t* dims = nullptr;
    size_t rank = 0;
  };

  // Asks the planner for a recipe before there are shapes.
  void prepare(const std::vector<Border>& inputs);
  // Makes a program after a recipe that fits, or else asks the planner.
  std::shared_ptr<const Program> compile(std::vector<Border> inputs);
  std::shared_ptr<const Program> make(const std::vector<Border>& inputs);
  std::shared_ptr<const Program> program_for(const std::vector<Input>& inputs);
  // Whether the program was compiled for these shapes.
  bool fits(const Program& program, const std::vector<Input>& inputs) const;
  void read_input(const ort::KernelContext* context, size_t index, Input& input,
                  const void*& data) const;

  static constexpr size_t kMaxRecipes = 8;

  std::shared_ptr<Shared> shared_;
  const int64_t number_;
  std::string question_;
  size_t outputs_;
  std::vector<ValueType> types_;
  std::vector<std::string> names_;
  std::vector<size_t> constant_inputs_;
  std::vector<size_t> changing_inputs_;
  std::shared_ptr<const Program> static_program_;
  std::mutex recipes_mutex_;                            // held for look-ups only
  std::vector<std::shared_ptr<const Recipe>> recipes_;  // the latest planned last
  // Constants stay where they are as long as the session lives: they are read once.
  std::once_flag constants_read_;
  std::vector<const void*> constants_;
  std::vector<Input> constant_shapes_;
};

}  // namespace onnx_iron
