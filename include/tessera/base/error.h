#pragma once

#include <stdexcept>

namespace tessera {

/// Base of everything that Tessera throws on purpose.
///
/// Catch `InvalidArgument` to handle a wrong call, `Error` to handle all of them.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something that cannot be meant. The message says which function, what was
/// given, what is allowed and what to do. Nothing has been changed and no byte has moved.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// An invariant of Tessera itself does not hold. Always a bug of ours: please report the message.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera
