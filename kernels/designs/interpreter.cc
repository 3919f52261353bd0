#include "interpreter.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>

#include "flat_design.h"
#include "host_kernels.h"
#include "tile.h"

namespace onnx_iron::designs {
namespace {

class Run {
 public:
  Run(const Design& design, const Kernels& kernels, void* const* buffers, const size_t* sizes,
      const int32_t* values, uint8_t poison)
      : design_(design), kernels_(kernels), values_(values), poison_(poison) {
    for (size_t i = 0; i < design.values.size(); ++i) {
      const Scalar& value = design.values[i];
      if (values[i] < value.low || values[i] > value.high) {
        throw std::out_of_range(value.name + " is " + std::to_string(values[i]) + ", expected " +
                                std::to_string(value.low) + ".." + std::to_string(value.high));
      }
    }
    for (size_t i = 0; i < design.buffers.size(); ++i) {
      const Port& buffer = design.buffers[i];
      const auto expected = static_cast<size_t>(buffer.elements * buffer.item_bytes);
      if (sizes[i] != expected) {
        throw std::invalid_argument("buffer " + buffer.name + " has " + std::to_string(sizes[i]) +
                                    " bytes, expected " + std::to_string(expected));
      }
      buffers_.push_back(static_cast<std::byte*>(buffers[i]));
      written_.emplace_back(buffer.access == Access::kWrite ? buffer.elements : 0, false);
    }
    for (const Call& call : design.calls) resolve(call);
  }

  void all() {
    if (design_.idle >= 0 && values_[design_.idle] == 0) return;
    for (size_t column = 0; column < design_.columns.size(); ++column) {
      column_ = static_cast<int64_t>(column);
      for (row_ = 0; row_ < design_.rows; ++row_) core();
    }
    for (size_t i = 0; i < written_.size(); ++i) {
      const auto missing = std::find(written_[i].begin(), written_[i].end(), false);
      if (missing != written_[i].end()) {
        throw std::logic_error("element " + std::to_string(missing - written_[i].begin()) +
                               " of output " + design_.buffers[i].name + " is never written");
      }
    }
  }

 private:
  void core() {
    tiles_.clear();
    coming_.assign(design_.streams.size(), {});
    for (size_t i = 0; i < design_.streams.size(); ++i) {
      const Stream& stream = design_.streams[i];
      tiles_.push_back(std::make_unique<Tile>(stream.room * stream.item_bytes, poison_));
      if (stream.whole) coming_[i] = all_of(stream);
    }
    for (const Local& local : design_.locals) {
      tiles_.push_back(std::make_unique<Tile>(local.bytes, poison_));
    }
    indices_.clear();
    level(0);
    for (size_t i = 0; i < coming_.size(); ++i) {
      if (!coming_[i].empty()) {
        throw std::logic_error("stream " + design_.streams[i].name + " of column " +
                               std::to_string(column_) + " moves " +
                               std::to_string(coming_[i].size()) + " bytes that no core takes");
      }
    }
  }

  // How often a loop runs now.
  int64_t trips(size_t depth) const {
    const std::vector<int64_t>& listed = design_.columns[static_cast<size_t>(column_)];
    if (design_.innermost.empty() || depth + 1 < listed.size()) return listed[depth];
    const bool first =
        std::all_of(indices_.begin(), indices_.end() - 1, [](int64_t index) { return index == 0; });
    return value(design_.innermost[first ? 0 : 1]);
  }

  void resolve(const Call& call) {
    const Kernels::Kernel& kernel = kernels_.find(call.kernel);
    bool fits = kernel.signature.size() == call.arguments.size();
    for (size_t i = 0; fits && i < call.arguments.size(); ++i) {
      const char letter = kernel.signature[i];
      switch (call.arguments[i].form) {
        case Argument::Form::kTile:
          fits = std::strchr("bBfF", letter) != nullptr;
          break;
        case Argument::Form::kIndex:
        case Argument::Form::kInteger:
          fits = letter == 'i';
          break;
        case Argument::Form::kReal:
          fits = letter == 'r';
          break;
      }
    }
    if (!fits) {
      throw std::invalid_argument(
          call.kernel + " does not take these arguments; its signature is " + kernel.signature);
    }
    resolved_.push_back(&kernel);
  }

  // Everything at a depth of loops: takes tiles, calls, loops, calls, gives tiles.
  void level(size_t depth) {
    const auto here = static_cast<int64_t>(depth);
    for (size_t i = 0; i < design_.streams.size(); ++i) {
      if (design_.streams[i].level != here) continue;
      tiles_[i]->fill(poison_);
      if (design_.streams[i].whole) {
        take_next(design_.streams[i], coming_[i], *tiles_[i]);
      } else if (!design_.streams[i].outgoing) {
        take(design_.streams[i], *tiles_[i]);
      }
    }
    calls(here, false);
    if (depth < design_.columns[static_cast<size_t>(column_)].size()) {
      indices_.push_back(0);
      for (const int64_t n = trips(depth); indices_.back() < n; ++indices_.back()) level(depth + 1);
      indices_.pop_back();
    }
    calls(here, true);
    for (const Stream& stream : design_.streams) {
      if (stream.level == here && stream.outgoing) give(stream);
    }
  }

  int64_t value(const Affine& affine) const {
    int64_t sum = affine.constant + affine.column * column_ + affine.row * row_;
    for (size_t i = 0; i < affine.loops.size() && i < indices_.size(); ++i) {
      sum += affine.loops[i] * indices_[i];
    }
    for (const auto& [number, factor] : affine.values) sum += factor * values_[number];
    if (!affine.each.empty()) sum += affine.each[static_cast<size_t>(column_)];
    return sum;
  }

  int64_t value(const Index& index) const {
    int64_t number = value(index.of);
    if (index.low) number = std::max(number, *index.low);
    if (index.high) number = std::min(number, value(*index.high));
    return number;
  }

  // A transfer's sizes in this call.
  std::vector<int64_t> sizes(const Transfer& transfer) const {
    std::vector<int64_t> walked = transfer.sizes;
    if (transfer.times >= 0) walked[0] = values_[transfer.times];
    return walked;
  }

  // Where a transfer starts; throws where it leaves its buffer.
  int64_t offset(const Stream& stream, const Transfer& transfer,
                 const std::vector<int64_t>& sizes) const {
    int64_t start = 0;
    for (const Term& term : transfer.terms) start += term.stride * value(term.index);
    int64_t first = start, last = start;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t reach = (sizes[i] - 1) * transfer.strides[i];
      (reach < 0 ? first : last) += reach;
    }
    const Port& buffer = design_.buffers[static_cast<size_t>(transfer.buffer)];
    if (first < 0 || last >= buffer.elements) {
      throw std::out_of_range("stream " + stream.name + " of column " + std::to_string(column_) +
                              " goes over elements " + std::to_string(first) + ".." +
                              std::to_string(last) + " of buffer " + buffer.name + ", which has " +
                              std::to_string(buffer.elements));
    }
    return start;
  }

  // Calls copy(buffer, element, elements, address in the buffer, place in what is moved, bytes)
  // along a stream's transfers.
  template <typename Copy>
  void along(const Stream& stream, int64_t whole, Copy&& copy) {
    int64_t place = 0;
    for (const Transfer& transfer : stream.transfers) {
      const auto number = static_cast<size_t>(transfer.buffer);
      const int64_t item = design_.buffers[number].item_bytes;
      const std::vector<int64_t> walked = sizes(transfer);
      walk(walked, transfer.strides, offset(stream, transfer, walked),
           [&](int64_t element, int64_t count) {
             if (place + count * item > whole) {
               throw std::out_of_range("stream " + stream.name + " moves more than its tile");
             }
             copy(number, element, count, buffers_[number] + element * item, place, count * item);
             place += count * item;
           });
    }
    if (place != whole) {
      throw std::out_of_range("stream " + stream.name + " moves less than its tile");
    }
  }

  // What a stream's transfers bring, `size` bytes.
  std::vector<std::byte> brought(const Stream& stream, int64_t size) {
    std::vector<std::byte> whole(static_cast<size_t>(size));
    along(stream, size,
          [&](size_t, int64_t, int64_t, const std::byte* from, int64_t place, int64_t n) {
            std::memcpy(whole.data() + place, from, static_cast<size_t>(n));
          });
    return whole;
  }

  // The tiles of all passes.
  std::deque<std::byte> all_of(const Stream& stream) {
    int64_t size = 0;
    for (const Transfer& transfer : stream.transfers) {
      int64_t elements = 1;
      for (const int64_t n : sizes(transfer)) elements *= n;
      size += elements * design_.buffers[static_cast<size_t>(transfer.buffer)].item_bytes;
    }
    const std::vector<std::byte> bytes = brought(stream, size);
    return {bytes.begin(), bytes.end()};
  }

  void take_next(const Stream& stream, std::deque<std::byte>& coming, Tile& tile) {
    if (coming.size() < tile.bytes()) {
      throw std::logic_error("stream " + stream.name + " of column " + std::to_string(column_) +
                             " has no tile for a core that waits for one");
    }
    const auto end = coming.begin() + static_cast<std::ptrdiff_t>(tile.bytes());
    std::copy(coming.begin(), end, tile.data());
    coming.erase(coming.begin(), end);
  }

  void take(const Stream& stream, Tile& tile) {
    std::vector<std::byte> whole = brought(stream, stream.parts * stream.bytes());
    arrange(stream, whole);
    const size_t part = stream.parts == 1 ? 0 : static_cast<size_t>(row_);
    const auto size = static_cast<size_t>(stream.bytes());
    std::memcpy(tile.data(), whole.data() + part * size, size);
  }

  void give(const Stream& stream) {
    const size_t source = stream.source >= 0 ? static_cast<size_t>(stream.source)
                                             : static_cast<size_t>(&stream - &design_.streams[0]);
    Tile& tile = *tiles_[source];
    if (tile.bytes() != static_cast<size_t>(stream.bytes())) {
      throw std::invalid_argument("stream " + stream.name + " passes on tiles of another size");
    }
    std::vector<std::byte> whole(tile.data(), tile.data() + tile.bytes());
    if (stream.parts > 1) {
      // A core runs to its end before the next one in the column: its tiles wait for theirs.
      std::vector<std::byte>& joined = joined_[{&stream, indices_}];
      joined.insert(joined.end(), whole.begin(), whole.end());
      if (row_ + 1 < stream.parts) return;
      whole = std::move(joined);
      joined_.erase({&stream, indices_});
    }
    arrange(stream, whole);
    along(stream, stream.parts * stream.bytes(),
          [&](size_t number, int64_t element, int64_t count, std::byte* to, int64_t place,
              int64_t n) {
            std::memcpy(to, whole.data() + place, static_cast<size_t>(n));
            if (!written_[number].empty()) {
              std::fill_n(written_[number].begin() + element, count, true);
            }
          });
  }

  // What a memory tile holds, in the order in which it reads it.
  void arrange(const Stream& stream, std::vector<std::byte>& tile) {
    if (stream.arrange.empty()) return;
    std::vector<int64_t> sizes, strides;
    for (const auto& [size, stride] : stream.arrange) {
      sizes.push_back(size);
      strides.push_back(stride);
    }
    const auto item = static_cast<size_t>(stream.item_bytes);
    const std::vector<std::byte> before = tile;
    size_t place = 0;
    walk(sizes, strides, 0, [&](int64_t element, int64_t count) {
      const size_t from = static_cast<size_t>(element) * item;
      const size_t n = static_cast<size_t>(count) * item;
      if (from + n > before.size() || place + n > before.size()) {
        throw std::out_of_range("stream " + stream.name + " is arranged beyond its tile");
      }
      std::memcpy(tile.data() + place, before.data() + from, n);
      place += n;
    });
    if (place != before.size()) {
      throw std::out_of_range("stream " + stream.name + " arranges less than its tile");
    }
  }

  void calls(int64_t depth, bool after) {
    for (size_t i = 0; i < design_.calls.size(); ++i) {
      const Call& call = design_.calls[i];
      if (call.level == depth && call.after == after) invoke(call, *resolved_[i]);
    }
  }

  void invoke(const Call& call, const Kernels::Kernel& kernel) {
    std::vector<Slot> slots;
    std::vector<Region> regions;
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const Argument& argument = call.arguments[i];
      Slot slot{};
      switch (argument.form) {
        case Argument::Form::kTile: {
          Tile& tile = *tiles_[static_cast<size_t>(argument.number)];
          slot.pointer = tile.data();
          const bool writes = kernel.signature[i] == 'B' || kernel.signature[i] == 'F';
          regions.push_back({tile.data(), tile.bytes(), writes});
          break;
        }
        case Argument::Form::kIndex:
          slot.integer = static_cast<int32_t>(value(argument.index));
          break;
        case Argument::Form::kInteger:
          slot.integer = static_cast<int32_t>(argument.number);
          break;
        case Argument::Form::kReal:
          slot.real = static_cast<float>(argument.real);
          break;
      }
      slots.push_back(slot);
    }
    try {
      kernels_.call(kernel, slots, regions);
    } catch (const std::exception& caught) {
      throw std::out_of_range(call.kernel + " in column " + std::to_string(column_) + ": " +
                              caught.what());
    }
    for (const auto& tile : tiles_) {
      if (!tile->intact()) {
        throw std::out_of_range(call.kernel + " in column " + std::to_string(column_) +
                                " writes outside its tiles");
      }
    }
  }

  const Design& design_;
  const Kernels& kernels_;
  const int32_t* values_;
  uint8_t poison_;
  std::vector<std::byte*> buffers_;
  std::vector<std::vector<bool>> written_;
  std::vector<const Kernels::Kernel*> resolved_;
  int64_t column_ = 0, row_ = 0;
  // By the stream and the loops' indices, the tiles of a column's cores so far.
  std::map<std::pair<const Stream*, std::vector<int64_t>>, std::vector<std::byte>> joined_;
  std::vector<int64_t> indices_;
  std::vector<std::unique_ptr<Tile>> tiles_;
  std::vector<std::deque<std::byte>> coming_;  // by stream, where it is whole
};

void report(const std::string& reason, char* error, size_t error_bytes) {
  const size_t length = std::min(reason.size(), error_bytes - 1);
  std::memcpy(error, reason.data(), length);
  error[length] = '\0';
}

}  // namespace
}  // namespace onnx_iron::designs

int onnx_iron_run_design(const void* design, size_t design_bytes, const char* kernels,
                         void* const* buffers, const size_t* sizes, const int32_t* values,
                         uint8_t poison, char* error, size_t error_bytes) {
  using namespace onnx_iron::designs;
  std::string name = "design";
  try {
    const Design decoded = decode(static_cast<const std::byte*>(design), design_bytes);
    name = decoded.name;
    Run(decoded, Kernels::at(kernels), buffers, sizes, values, poison).all();
    return 0;
  } catch (const std::exception& caught) {
    report(name + ": " + caught.what(), error, error_bytes);
    return 1;
  }
}
