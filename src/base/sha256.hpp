// SHA-256 (FIPS 180-4), by OpenSSL's libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lowtide {

/// Hashes what it is fed. Movable, not copyable, not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, std::size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// 64 lower-case hex digits. The object may not be used afterwards.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lowtide
