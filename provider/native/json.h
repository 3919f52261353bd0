// A writer of JSON text: enough to describe a graph to Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_iron {

// Containers nest by begin/end; the writer puts the commas.
class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }

  void key(std::string_view name);
  void value(int64_t number);
  // Digits that give the same float back.
  void value(float number);
  void value(bool flag);
  // Bytes that are no UTF-8 come out as the lone surrogates U+DC80..U+DCFF, which is what Python's
  // "surrogateescape" makes of them.
  void value(std::string_view text);
  void value(const char* text) = delete;  // would be taken for a bool
  void null();

  template <typename T>
  void member(std::string_view name, const T& item) {
    key(name);
    value(item);
  }
  template <typename T>
  void array(const std::vector<T>& items) {
    begin_array();
    for (const T& item : items) value(item);
    end_array();
  }

  const std::string& text() const { return text_; }

 private:
  void separate();
  void open(char bracket);
  void close(char bracket);
  void quote(std::string_view text);

  std::string text_;
  bool first_ = true;
};

}  // namespace onnx_iron
