// The smallest test harness that serves: TEST(name) { ... CHECK(...) ... } and run_tests() in main.
//
// A failed check prints where, and what it compared; the test goes on. run_tests() returns the
// number of failed checks as an exit status.
#pragma once

#include <atomic>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace anabranch::testing {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline std::atomic<int> failures = 0;

inline void fail(const char* file, int line, const std::string& what) {
  // A loop that fails a million times says so a hundred times.
  if (++failures <= 100) std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

template <class A, class B>
void check_equal(const char* file, int line, const char* text, const A& a, const B& b) {
  if (a == b) return;
  std::ostringstream what;
  what << text << ": " << a << " != " << b;
  fail(file, line, what.str());
}

// `body` throws E, with `part` in its message.
template <class E, class Body>
void check_throws(const char* file, int line, const char* part, Body&& body) {
  try {
    body();
    fail(file, line, std::string("nothing was thrown, expected: ") + part);
  } catch (const E& error) {
    if (std::string(error.what()).find(part) == std::string::npos) {
      fail(file, line, std::string("expected: ") + part + "\n  got: " + error.what());
    }
  }
}

inline int run_tests() {
  for (const Test& test : tests()) {
    const int before = failures;
    try {
      test.body();
    } catch (const std::exception& error) {
      fail(test.name, 0, std::string("unexpected exception: ") + error.what());
    }
    std::printf("%s %s\n", failures == before ? "ok  " : "FAIL", test.name);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace anabranch::testing

#define TEST(name)                                                       \
  static void name();                                                    \
  static const bool name##_added =                                       \
      (::anabranch::testing::tests().push_back({#name, &(name)}), true); \
  static void name()

#define CHECK(condition) \
  ((condition) ? void() : ::anabranch::testing::fail(__FILE__, __LINE__, #condition))
#define CHECK_EQ(a, b) ::anabranch::testing::check_equal(__FILE__, __LINE__, #a " == " #b, (a), (b))
#define CHECK_THROWS(type, part, ...) \
  ::anabranch::testing::check_throws<type>(__FILE__, __LINE__, (part), [&] { __VA_ARGS__; })
