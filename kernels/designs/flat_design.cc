#include "flat_design.h"

#include <cstring>
#include <stdexcept>

namespace onnx_iron::designs {
namespace {

constexpr int64_t kMostRows = 4;
constexpr int64_t kMagic = 0x324e474953454431;  // as encode writes it

// Numbers of eight bytes, and texts: their length, then their bytes.
class Reader {
 public:
  Reader(const std::byte* bytes, size_t size) : at_(bytes), left_(size) {}

  int64_t number() { return take<int64_t>(); }
  double real() { return take<double>(); }
  bool flag() { return number() != 0; }

  size_t count() {
    const int64_t n = number();
    if (n < 0 || static_cast<size_t>(n) > left_) fail();
    return static_cast<size_t>(n);
  }

  std::string text() {
    const size_t length = count();
    std::string read(reinterpret_cast<const char*>(at_), length);
    at_ += length;
    left_ -= length;
    return read;
  }

  template <typename Item>
  auto many(Item&& item) {
    std::vector<decltype(item())> read;
    for (size_t n = count(); n > 0; --n) read.push_back(item());
    return read;
  }

  std::vector<int64_t> numbers() {
    return many([this] { return number(); });
  }

  std::vector<std::pair<int64_t, int64_t>> pairs() {
    return many([this] {
      const int64_t first = number();
      return std::pair(first, number());
    });
  }

  // A number below `limit`.
  int64_t below(size_t limit, int64_t least = 0) {
    const int64_t n = number();
    if (n < least || n >= static_cast<int64_t>(limit)) fail();
    return n;
  }

  bool empty() const { return left_ == 0; }
  [[noreturn]] static void fail() { throw std::invalid_argument("the bytes are no design"); }

 private:
  template <typename T>
  T take() {
    T value;
    if (left_ < sizeof(T)) fail();
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    left_ -= sizeof(T);
    return value;
  }

  const std::byte* at_;
  size_t left_;
};

// Reads a design's parts, which refer to one another by number.
class Decoder {
 public:
  explicit Decoder(Reader& in) : in_(in) {}

  Design design() {
    if (in_.number() != kMagic) Reader::fail();
    Design d;
    d.name = in_.text();
    d.buffers = in_.many([this] { return port(); });
    buffers_ = d.buffers.size();
    d.values = in_.many([this] {
      Scalar v;
      v.name = in_.text();
      v.low = in_.number();
      v.high = in_.number();
      return v;
    });
    values_ = d.values.size();
    d.columns = in_.many([this] { return in_.numbers(); });
    if (d.columns.empty()) Reader::fail();
    loops_ = d.columns.front().size();
    columns_ = d.columns.size();
    for (const auto& trips : d.columns) {
      if (trips.size() != loops_) Reader::fail();
    }
    d.rows = rows_ = in_.below(kMostRows + 1, 1);
    d.streams = in_.many([this] { return stream(); });
    d.locals = in_.many([this] {
      Local l;
      l.name = in_.text();
      l.bytes = in_.number();
      return l;
    });
    tiles_ = d.streams.size() + d.locals.size();
    for (const Stream& s : d.streams) {
      if (s.source >= static_cast<int64_t>(d.streams.size())) Reader::fail();
    }
    d.calls = in_.many([this] { return call(); });
    d.idle = in_.below(values_, -1);
    d.innermost = in_.many([this] { return affine(); });
    if (!d.innermost.empty() && (d.innermost.size() != 2 || loops_ == 0)) Reader::fail();
    if (!in_.empty()) Reader::fail();
    return d;
  }

 private:
  Affine affine() {
    Affine a;
    a.constant = in_.number();
    a.column = in_.number();
    a.row = in_.number();
    a.loops = in_.numbers();
    if (a.loops.size() > loops_) Reader::fail();
    a.values = in_.many([this] {
      const int64_t value = in_.below(values_);
      return std::pair(value, in_.number());
    });
    a.each = in_.numbers();
    if (!a.each.empty() && a.each.size() != columns_) Reader::fail();
    return a;
  }

  Index index() {
    Index i;
    i.of = affine();
    if (in_.flag()) i.low = in_.number();
    if (in_.flag()) i.high = affine();
    return i;
  }

  Transfer transfer() {
    Transfer t;
    t.buffer = in_.below(buffers_);
    t.sizes = in_.numbers();
    t.strides = in_.numbers();
    if (t.sizes.empty() || t.sizes.size() != t.strides.size()) Reader::fail();
    for (const int64_t size : t.sizes) {
      if (size < 1) Reader::fail();
    }
    t.terms = in_.many([this] {
      Term term;
      term.stride = in_.number();
      term.index = index();
      return term;
    });
    t.times = in_.below(values_, -1);
    return t;
  }

  Port port() {
    Port p;
    p.name = in_.text();
    p.item_bytes = in_.number();
    p.elements = in_.number();
    p.access = static_cast<Access>(in_.below(3));
    return p;
  }

  Stream stream() {
    Stream s;
    s.name = in_.text();
    s.outgoing = in_.flag();
    s.level = in_.below(loops_ + 1);
    s.item_bytes = in_.number();
    s.elements = in_.number();
    s.parts = in_.number();
    if (s.elements < 1 || s.item_bytes < 1 || (s.parts != 1 && s.parts != rows_)) Reader::fail();
    s.transfers = in_.many([this] { return transfer(); });
    s.arrange = in_.pairs();
    s.source = in_.number();
    s.whole = in_.flag();
    s.room = in_.number();
    if (s.room < s.elements) Reader::fail();
    if (s.whole && (s.outgoing || s.parts != 1 || !s.arrange.empty())) Reader::fail();
    return s;
  }

  Argument argument() {
    Argument a;
    a.form = static_cast<Argument::Form>(in_.below(4));
    switch (a.form) {
      case Argument::Form::kTile:
        a.number = in_.below(tiles_);
        break;
      case Argument::Form::kIndex:
        a.index = index();
        break;
      case Argument::Form::kInteger:
        a.number = in_.number();
        break;
      case Argument::Form::kReal:
        a.real = in_.real();
        break;
    }
    return a;
  }

  Call call() {
    Call c;
    c.kernel = in_.text();
    c.level = in_.below(loops_ + 1);
    c.after = in_.flag();
    c.arguments = in_.many([this] { return argument(); });
    return c;
  }

  Reader& in_;
  size_t buffers_ = 0, values_ = 0, loops_ = 0, tiles_ = 0, columns_ = 0;
  int64_t rows_ = 1;
};

}  // namespace

Design decode(const std::byte* bytes, size_t size) {
  Reader in(bytes, size);
  return Decoder(in).design();
}

}  // namespace onnx_iron::designs
