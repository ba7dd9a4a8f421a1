#!/usr/bin/env bash
# tidy_test.sh WORK_DIR: `./dev lint tidy` catches a violation of each group of checks, which shows
# that no line of .clang-tidy cancels another.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

root="$here/../.."
work="$1/tidy"
rm -rf -- "$work"
mkdir -p "$work/src/tessera/base" "$work/include/tessera/base"
cp "$root/.clang-tidy" "$work"
file="$work/src/tessera/base/planted.cpp"
header="$work/include/tessera/base/planted.h"
cat >"$work/compile_commands.json" <<JSON
[{"directory": "$work", "file": "$file",
  "arguments": ["g++", "-std=c++20", "-Wall", "-I$work/include", "-c", "$file"]}]
JSON
check=(python3 "$root/tools/lint/check_tidy.py" "$work" "$work")

# Each line that ends in a check's name violates it.
cat >"$header" <<'BAD'
#pragma once
int BadFunction();  // readability-identifier-naming
BAD
{
  cat <<'BAD'
#include "tessera/base/planted.h"

#include <string>
#include <utility>
#include <vector>

class bad_class {  // readability-identifier-naming
 public:
  bad_class(int size) : size(size) {}  // google-explicit-constructor

 private:
  int size;  // readability-identifier-naming
};
struct Base {
  virtual ~Base() = default;
  virtual int value() const { return 1; }
};
struct Derived : Base {
  virtual int value() const { return 2; }  // modernize-use-override
};
enum class Op { Sum };  // readability-identifier-naming
#define PLANTED 1  // readability-identifier-naming
template <typename element>  // readability-identifier-naming
struct Holder {};
constexpr int limit = 3;  // readability-identifier-naming
int by_value(std::string text) { return static_cast<int>(text.size()); }  // performance-unnecessary-value-param
std::size_t moved() {
  std::string text = "text";
  const std::string other = std::move(text);
  return other.size() + text.size();  // bugprone-use-after-move
}
int long_function(int x) {  // readability-function-size
BAD
  for ((i = 0; i < 62; ++i)); do echo "  x += $i;"; done
  printf '  return x;\n}\n'
} >"$file"
expect_fail any "${check[@]}"
while IFS=: read -r path line text; do
  [[ "$output" == *"${path#"$work"/}:$line:"*"[${text##* },-warnings-as-errors]"* ]] ||
    fail "no complaint by ${text##* } about ${path#"$work"/}:$line"
done < <(grep -n -H -E '// [a-z]+-[a-z-]+$' "$file" "$header")
expect_output "${header#"$work"/}:2:" "invalid case style for function 'BadFunction'"

# The clean twin.
printf '#pragma once\nint good_function();\n' >"$header"
cat >"$file" <<'GOOD'
#include "tessera/base/planted.h"

#include <string>

namespace tessera {
enum class ReduceOp { sum, avg };
constexpr int kLimit = 3;
class GoodClass {
 public:
  explicit GoodClass(int size) : size_(size) {}
  virtual ~GoodClass() = default;
  [[nodiscard]] virtual int value() const { return size_; }

 private:
  int size_;
};
struct Derived : GoodClass {
  using GoodClass::GoodClass;
  [[nodiscard]] int value() const override { return kLimit; }
};
template <typename Element>
std::size_t length(const Element& element) {
  return element.size();
}
}  // namespace tessera
GOOD
expect_pass "${check[@]}"
expect_pass "${check[@]}"

# That it was clean once does not hide a new violation, not even in a header.
printf '#pragma once\nint AnotherFunction();\n' >"$header"
expect_fail 1 "${check[@]}"
expect_output "planted.h:2:" "invalid case style for function 'AnotherFunction'"

# A configuration that cannot be read is an error, not a silent default.
printf 'CheckOptions: {broken\n' >"$work/.clang-tidy"
expect_fail 1 "${check[@]}"
expect_output "clang-tidy cannot read its configuration"
