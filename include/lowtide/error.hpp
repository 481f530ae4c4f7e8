// The exception family. Every message is one line that says what, where and what to do about it.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "lowtide/bytes.hpp"

namespace lowtide {

/// Base of everything lowtide throws on purpose. Destructors never throw.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong usage, options or configuration, or no inputs found (exit code 2).
class UsageError : public Error {
 public:
  using Error::Error;
};

/// One input of a batch is wrong: name, shape, dtype, or the file cannot be read (exit code 1).
class InputError : public Error {
 public:
  using Error::Error;
};

/// The archive is damaged, hostile, of another format, or uses what lowtide does not read (exit code 4).
class ArchiveError : public Error {
 public:
  using Error::Error;
};

/// The graph calls an operator that is not registered or not supported (exit code 4).
class UnsupportedOp : public ArchiveError {
 public:
  using ArchiveError::ArchiveError;
};

/// The work does not fit under the cap (exit code 3). Nothing was moved.
class PlanInfeasible : public Error {
 public:
  PlanInfeasible(const std::string& message, Bytes min_cap, std::optional<Bytes> min_cap_split = std::nullopt)
      : Error(message), min_cap_(min_cap), min_cap_split_(min_cap_split) {}
  /// The smallest cap, context included, with which the same work runs.
  Bytes min_cap() const { return min_cap_; }
  /// The smallest where weights may be split (SessionOptions::allow_split); nothing where that does not help.
  std::optional<Bytes> min_cap_split() const { return min_cap_split_; }

 private:
  Bytes min_cap_;
  std::optional<Bytes> min_cap_split_;
};

/// The same for the cap on host memory (SessionOptions::ram_cap).
class RamCapTooSmall : public PlanInfeasible {
 public:
  RamCapTooSmall(const std::string& message, Bytes min_ram_cap)
      : PlanInfeasible(message, 0), min_ram_cap_(min_ram_cap) {}
  /// The smallest RAM cap with which the same work runs. min_cap() is not known.
  Bytes min_ram_cap() const { return min_ram_cap_; }

 private:
  Bytes min_ram_cap_;
};

/// An allocation was refused although the plan foresaw it, or nothing foresaw it. Fails the job, not the
/// batch.
class OutOfBudget : public Error {
 public:
  OutOfBudget(const std::string& message, Bytes want, Bytes cap) : Error(message), want_(want), cap_(cap) {}
  Bytes want() const { return want_; }
  Bytes cap() const { return cap_; }

 private:
  Bytes want_;
  Bytes cap_;
};

/// An operator failed while running. The message names node, arguments and source line. Fails the job.
class OperatorError : public Error {
 public:
  using Error::Error;
};

/// No such device, or the device reported an error (exit code 5).
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// The caller asked to stop (exit code 130).
class Cancelled : public Error {
 public:
  using Error::Error;
};

}  // namespace lowtide
