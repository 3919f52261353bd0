#include "provider/native/provider.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "provider/native/describe.h"
#include "provider/native/planner.h"
#include "provider/native/status.h"

namespace onnx_iron {
namespace {

constexpr uint32_t kVendorAmd = 0x1022;
constexpr char kOptionPrefix[] = "ep.ironexecutionprovider.";

std::atomic<int64_t> providers_made{0};

// The provider's options among all of the session's entries, and whether these ask for a file of
// compiled nodes.
Provider::Options options_of(const ort::SessionOptions* session_options, bool* saving) {
  ort::KeyValuePairs* entries = nullptr;
  check(ort::GetSessionOptionsConfigEntries(session_options, &entries));
  const char* const* keys = nullptr;
  const char* const* values = nullptr;
  size_t count = 0;
  ort::GetKeyValuePairs(entries, &keys, &values, &count);
  Provider::Options options;
  size_t prefix = std::strlen(kOptionPrefix);
  for (size_t i = 0; i < count; ++i) {
    if (std::strncmp(keys[i], kOptionPrefix, prefix) == 0) {
      options.emplace_back(keys[i] + prefix, values[i]);
    }
    if (std::strcmp(keys[i], "ep.context_enable") == 0) *saving = std::strcmp(values[i], "1") == 0;
  }
  ort::ReleaseKeyValuePairs(entries);
  return options;
}

void add_device(ort::FactoryTable* factory, const ort::HardwareDevice* device,
                ort::EpDevice** devices, size_t capacity, size_t* written) {
  if (*written == capacity) return;
  check(ort::CreateEpDevice(factory, device, nullptr, nullptr, &devices[*written]));
  ++*written;
}

// The logger, if it takes remarks.
const ort::Logger* verbose(const ort::Logger* logger) {
  int32_t severity = ort::kVerbose + 1;
  if (logger != nullptr) check(ort::Logger_GetLoggingSeverityLevel(logger, &severity));
  return severity <= ort::kVerbose ? logger : nullptr;
}

}  // namespace

Provider::Provider(const Options& options, bool saving, const ort::Logger* logger)
    : number_(++providers_made), logger_(verbose(logger)) {
  JsonWriter json;
  json.begin_object();
  for (const auto& [name, value] : options) {
    json.member(name, std::string_view(value));
  }
  json.end_object();
  identity_ = "\"provider\":" + std::to_string(number_) + ",\"options\":" + json.text() +
              ",\"verbose\":" + (logger_ != nullptr ? "true" : "false");

  GetName = [](const ort::EpTable*) -> const char* { return kProviderName; };
  GetCapability = [](ort::EpTable* self, const ort::Graph* graph, ort::SupportInfo* support) {
    return guarded([&] { static_cast<Provider*>(self)->claim(graph, support); });
  };
  Compile = [](ort::EpTable* self, const ort::Graph** graphs, const ort::Node** fused_nodes,
               size_t count, ort::ComputeTable** compute, ort::Node**) {
    return guarded([&] {
      for (size_t i = 0; i < count; ++i) {
        static_cast<Provider*>(self)->compile(graphs[i], fused_nodes[i], &compute[i]);
      }
    });
  };
  ReleaseNodeComputeInfos = [](ort::EpTable*, ort::ComputeTable** compute, size_t count) {
    for (size_t i = 0; i < count; ++i) delete static_cast<Subgraph*>(compute[i]);
  };

  Request request;
  request.question = begin_question("open") + "}";
  try {
    if (saving) {
      throw std::invalid_argument(
          "IronExecutionProvider saves no compiled models: it compiles as a session opens; leave "
          "out ep.context_enable, and keep the model as it was exported");
    }
    ask(request);
  } catch (const Interrupted&) {
    interrupted_ = true;
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
  shared_ = std::make_shared<Shared>(request.program_cache_bytes, logger_,
                                     std::move(request.recording), number_);
}

std::string Provider::begin_question(const char* kind) const {
  return "{\"kind\":\"" + std::string(kind) + "\"," + identity_;
}

void Provider::claim(const ort::Graph* graph, ort::SupportInfo* support) {
  std::vector<const ort::Node*> nodes = nodes_of(graph);
  if (nodes.empty() || interrupted_) return;
  Request request;
  try {
    if (!failure_.empty()) throw std::invalid_argument(failure_);
    if (shared_->recording) shared_->recording->name_session(number_, name_of(graph));
    JsonWriter json;
    describe(json, graph, inputs_of(graph), outputs_of(graph));
    request.question = begin_question("claim") + ",\"graph\":" + json.text() + "}";
    request.logger = logger_;
    ask(request);
    for (const std::vector<size_t>& claim : request.claims) {
      for (size_t index : claim) {
        if (index >= nodes.size()) throw std::invalid_argument("planner: no such node");
      }
    }
  } catch (const Interrupted&) {
    interrupted_ = true;
    return;
  } catch (const std::exception& error) {
    failure_ = error.what();
    request.claims.clear();
    auto is_free = [](const ort::Node* node) {
      const char* name = nullptr;
      check(ort::Node_GetEpName(node, &name));
      return name == nullptr || *name == 0;
    };
    auto free_node = std::find_if(nodes.begin(), nodes.end(), is_free);
    if (free_node == nodes.end()) return;
    request.claims = {{static_cast<size_t>(free_node - nodes.begin())}};
  }
  ort::FusionOptions fusion;
  for (const std::vector<size_t>& claim : request.claims) {
    std::vector<const ort::Node*> group;
    for (size_t index : claim) group.push_back(nodes[index]);
    check(ort::EpGraphSupportInfo_AddNodesToFuse(support, group.data(), group.size(), &fusion));
  }
}

void Provider::compile(const ort::Graph* graph, const ort::Node* fused_node,
                       ort::ComputeTable** compute) {
  if (!failure_.empty()) throw std::invalid_argument(failure_);
  // The fused node has the order of inputs and outputs; the graph's own values know their types and
  // which of them are constant.
  std::unordered_map<std::string, const ort::ValueInfo*> values;
  for (const ort::Node* node : nodes_of(graph)) {
    for (const auto& list : {inputs_of(node), outputs_of(node)}) {
      for (const ort::ValueInfo* value : list) {
        if (value != nullptr) values.emplace(name_of(value), value);
      }
    }
  }
  auto known = [&](std::vector<const ort::ValueInfo*> list) {
    for (const ort::ValueInfo*& value : list) {
      auto found = values.find(name_of(value));
      if (found != values.end()) value = found->second;
    }
    return list;
  };
  std::vector<const ort::ValueInfo*> inputs = known(inputs_of(fused_node));
  std::vector<const ort::ValueInfo*> outputs = known(outputs_of(fused_node));
  JsonWriter json;
  describe(json, graph, inputs, outputs);
  std::string question = begin_question("compile") + ",\"graph\":" + json.text();
  *compute = new Subgraph(std::move(question), inputs, outputs.size(), shared_);
}

ProviderFactory::ProviderFactory() {
  GetName = [](const ort::FactoryTable*) -> const char* { return kProviderName; };
  GetVendor = [](const ort::FactoryTable*) -> const char* { return "onnx-iron"; };
  GetVendorId = [](const ort::FactoryTable*) { return kVendorAmd; };
  GetVersion = [](const ort::FactoryTable*) -> const char* { return ONNX_IRON_VERSION; };
  GetSupportedDevices = [](ort::FactoryTable* self, const ort::HardwareDevice* const* hardware,
                           size_t count, ort::EpDevice** devices, size_t capacity,
                           size_t* written) {
    return guarded([&] {
      *written = 0;
      for (size_t i = 0; i < count; ++i) {
        if (ort::HardwareDevice_Type(hardware[i]) == ort::kCpu) {
          add_device(self, hardware[i], devices, capacity, written);
        }
      }
      // Which device runs a model is the provider's option; the processor stands for both.
      if (*written > 0) return;
      for (size_t i = 0; i < count; ++i) {
        if (ort::HardwareDevice_Type(hardware[i]) == ort::kNpu &&
            ort::HardwareDevice_VendorId(hardware[i]) == kVendorAmd) {
          add_device(self, hardware[i], devices, capacity, written);
        }
      }
    });
  };
  CreateEp = [](ort::FactoryTable*, const ort::HardwareDevice* const*,
                const ort::KeyValuePairs* const*, size_t, const ort::SessionOptions* options,
                const ort::Logger* logger, ort::EpTable** provider) {
    return guarded([&] {
      bool saving = false;
      Provider::Options given = options_of(options, &saving);
      *provider = new Provider(given, saving, logger);
    });
  };
  ReleaseEp = [](ort::FactoryTable*, ort::EpTable* provider) {
    delete static_cast<Provider*>(provider);
  };
  // Called without a check for null: everything is in the host's memory, nothing is transferred.
  CreateDataTransfer = [](ort::FactoryTable*, void** transfer) -> ort::Status* {
    *transfer = nullptr;
    return nullptr;
  };
  IsStreamAware = [](const ort::FactoryTable*) { return false; };
}

}  // namespace onnx_iron
