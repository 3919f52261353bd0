// The programs of a session's subgraphs, one for each set of input shapes, the latest used of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "provider/native/program.h"

namespace onnx_iron {

// How many programs all caches of this process hold.
extern std::atomic<size_t> programs_cached;

class ProgramCache {
 public:
  // The subgraph's number and its inputs' shapes.
  using Key = std::vector<int64_t>;

  // `limit` is in bytes of programs; the latest is kept even if it alone has more.
  explicit ProgramCache(size_t limit) : limit_(limit) {}
  ~ProgramCache() { programs_cached -= entries_.size(); }
  ProgramCache(const ProgramCache&) = delete;
  ProgramCache& operator=(const ProgramCache&) = delete;

  // A number for a subgraph.
  int64_t new_number() { return ++numbers_; }
  // null where there is none.
  std::shared_ptr<const Program> find(const Key& key);
  // Drops what was not used for longest to make room. Who runs a dropped program still holds it.
  void add(const Key& key, std::shared_ptr<const Program> program);

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Program> program;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  const size_t limit_;
  std::atomic<int64_t> numbers_{0};
  std::mutex mutex_;          // held for look-ups only
  std::list<Entry> entries_;  // the latest used first
  std::unordered_map<Key, std::list<Entry>::iterator, Hash> places_;
  size_t bytes_ = 0;
};

}  // namespace onnx_iron
