#include "provider/native/arena.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <stdexcept>
#include <utility>

#include "provider/native/frame.h"

namespace onnx_iron {
namespace {

// The bytes that nobody uses, the last of them without an end.
class Gaps {
 public:
  // Where the first gap of a size begins, which is taken from it.
  int64_t take(int64_t size) {
    auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& each) {
      return each.second - each.first >= size;
    });
    if (gap == gaps_.end()) throw std::invalid_argument("arena: the values are too big");
    auto [begin, end] = *gap;
    gaps_.erase(gap);
    if (begin + size < end) gaps_.emplace(begin + size, end);
    return begin;
  }
  // Gives bytes back; gaps that touch become one.
  void give(int64_t begin, int64_t end) {
    auto after = gaps_.lower_bound(begin);
    if (after != gaps_.end() && after->first == end) {
      end = after->second;
      after = gaps_.erase(after);
    }
    if (after != gaps_.begin() && std::prev(after)->second == begin) {
      std::prev(after)->second = end;
    } else {
      gaps_.emplace(begin, end);
    }
  }

 private:
  std::map<int64_t, int64_t> gaps_{{0, std::numeric_limits<int64_t>::max()}};
};

}  // namespace

std::vector<int64_t> arena_offsets(const std::vector<Span>& spans) {
  Gaps gaps;
  std::vector<int64_t> offsets(spans.size());
  using Ending = std::pair<int64_t, size_t>;  // step, span
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings;
  auto padded = [](int64_t bytes) {
    constexpr int64_t kStep = kAlignment;
    return (std::max<int64_t>(bytes, 1) + kStep - 1) / kStep * kStep;
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    while (!endings.empty() && endings.top().first < spans[i].begin) {
      size_t ended = endings.top().second;
      gaps.give(offsets[ended], offsets[ended] + padded(spans[ended].bytes));
      endings.pop();
    }
    if (spans[i].bytes < 0 || spans[i].bytes > int64_t{1} << 48) {
      throw std::invalid_argument("arena: a value is too big");
    }
    offsets[i] = gaps.take(padded(spans[i].bytes));
    endings.emplace(spans[i].end, i);
  }
  return offsets;
}

}  // namespace onnx_iron
