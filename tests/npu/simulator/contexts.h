// Hardware contexts: each has the designs that its xclbin holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "designs.h"
#include "memory.h"

namespace npu_driver {

struct Context {
  int file = -1;
  uint32_t columns = 0;
  // One for each compute unit; null where the bytes were no design.
  std::vector<std::shared_ptr<const Design>> units;
  std::atomic<bool> lost{false};
};

class Contexts {
 public:
  // These return 0 or an errno.
  int create(int file, uint32_t columns, uint32_t* handle);
  int configure(uint32_t handle, std::vector<Bytes> units);
  int destroy(uint32_t handle);

  std::vector<uint32_t> of_file(int file);
  // null where there is none.
  std::shared_ptr<Context> find(uint32_t handle);

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Context>> contexts_;
  uint32_t next_handle_ = 1;
};

}  // namespace npu_driver
