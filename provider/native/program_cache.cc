#include "provider/native/program_cache.h"

#include <utility>

namespace onnx_iron {

std::atomic<size_t> programs_cached{0};

size_t ProgramCache::Hash::operator()(const Key& key) const {
  uint64_t hash = 0;
  for (int64_t number : key) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<const Program> ProgramCache::find(const Key& key) {
  std::lock_guard lock(mutex_);
  auto place = places_.find(key);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return entries_.front().program;
}

void ProgramCache::add(const Key& key, std::shared_ptr<const Program> program) {
  std::list<Entry> dropped;  // destroyed without the lock: a program may call Python to let it go
  std::list<Entry> added;
  size_t bytes = program->bytes();
  added.push_back({key, std::move(program)});
  std::lock_guard lock(mutex_);
  // Another thread may have met the same shapes.
  if (!places_.emplace(key, added.begin()).second) return;
  entries_.splice(entries_.begin(), added);
  bytes_ += bytes;
  ++programs_cached;
  while (bytes_ > limit_ && entries_.size() > 1) {
    const Entry& last = entries_.back();
    bytes_ -= last.program->bytes();
    places_.erase(last.key);
    dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
    --programs_cached;
  }
}

}  // namespace onnx_iron
