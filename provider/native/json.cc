#include "provider/native/json.h"

#include <cmath>
#include <cstdio>

namespace onnx_iron {
namespace {

// Length of the UTF-8 sequence at the start of text, or 0 where there is none.
size_t sequence_length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;  // a surrogate
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ':';
  first_ = true;
}

void JsonWriter::value(int64_t number) {
  separate();
  text_ += std::to_string(number);
}

void JsonWriter::value(float number) {
  separate();
  if (std::isnan(number)) {
    text_ += "NaN";
  } else if (std::isinf(number)) {
    text_ += number > 0 ? "Infinity" : "-Infinity";
  } else {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17e", static_cast<double>(number));
    text_ += digits;
  }
}

void JsonWriter::value(bool flag) {
  separate();
  text_ += flag ? "true" : "false";
}

void JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
}

void JsonWriter::null() {
  separate();
  text_ += "null";
}

void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    size_t length = sequence_length(text);
    unsigned char lead = static_cast<unsigned char>(text[0]);
    char escape[8];
    if (length == 0) {
      std::snprintf(escape, sizeof escape, "\\udc%02x", lead);
      text_ += escape;
      length = 1;
    } else if (lead == '"' || lead == '\\') {
      text_ += '\\';
      text_ += text[0];
    } else if (lead < 0x20) {
      std::snprintf(escape, sizeof escape, "\\u%04x", lead);
      text_ += escape;
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  text_ += '"';
}

}  // namespace onnx_iron
