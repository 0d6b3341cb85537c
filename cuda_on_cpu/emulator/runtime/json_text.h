// Writes text as JSON.
#pragma once

#include <string>

namespace emulator {

// Returns the text as a JSON string. A control character, which JSON does not allow, becomes a space.
inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

}  // namespace emulator
