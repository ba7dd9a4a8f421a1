# tessera_build_flags: how we compile our own targets. Linked PRIVATE, never installed.

add_library(tessera_build_flags INTERFACE)
target_compile_options(
  tessera_build_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
target_compile_definitions(
  tessera_build_flags INTERFACE $<$<NOT:$<CONFIG:Release,MinSizeRel>>:_GLIBCXX_ASSERTIONS>)

if(TESSERA_SANITIZE)
  target_compile_options(
    tessera_build_flags INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all
                                  -fno-omit-frame-pointer)
  target_link_options(tessera_build_flags INTERFACE -fsanitize=${TESSERA_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The checks hide from it what is initialized, even in libtorch's default arguments.
    target_compile_options(tessera_build_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(TESSERA_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Fences go unseen, it warns, and libtorch's headers have some.
    target_compile_options(tessera_build_flags INTERFACE -Wno-tsan)
  endif()
endif()
