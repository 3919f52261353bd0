// The execution provider: one for each session that asks for it, made by a factory that lives as
// long as the library is registered.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "provider/native/ort_api.h"
#include "provider/native/planner.h"
#include "provider/native/subgraph.h"

namespace onnx_iron {

inline constexpr char kProviderName[] = "IronExecutionProvider";

class Provider : public ort::EpTable {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  // Asks Python whether the options are good.
  Provider(const Options& options, bool saving, const ort::Logger* logger);

 private:
  void claim(const ort::Graph* graph, ort::SupportInfo* support);
  void compile(const ort::Graph* graph, const ort::Node* fused_node, ort::ComputeTable** compute);
  std::string begin_question(const char* kind) const;

  // Of all providers ever made, another.
  const int64_t number_;
  // Members that every question begins with.
  std::string identity_;
  std::shared_ptr<Shared> shared_;
  // The session's; null where it does not want remarks.
  const ort::Logger* logger_;
  // What is wrong with the options, or went wrong in a claim. onnxruntime would drop an error of
  // GetCapability, and its Python side answers one of CreateEp with a session on another provider:
  // so it is kept until Compile can report it.
  std::string failure_;
  // After an interruption nothing is claimed: the session opens soon, for its caller to be told.
  bool interrupted_ = false;
};

class ProviderFactory : public ort::FactoryTable {
 public:
  ProviderFactory();
};

}  // namespace onnx_iron
