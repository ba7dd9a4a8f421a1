# The functions with which each folder declares what it holds.

# tessera_configure_target(<target>)
#
# Applies what all of our own libraries and programs share: C++20, warnings, private headers.
function(tessera_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tessera_build_flags>)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()

# tessera_add_library(<name> [LINK <target>...])
#
# A library `tessera::<name>` (the target itself is tessera_<name>), which links those publicly. Its
# content comes from tessera_add_layer.
function(tessera_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  _tessera_check_arguments(tessera_add_library)
  set(target tessera_${name})
  add_library(${target})
  add_library(tessera::${name} ALIAS ${target})
  tessera_configure_target(${target})
  target_link_libraries(${target} PUBLIC ${arg_LINK})
  set_target_properties(
    ${target}
    PROPERTIES EXPORT_NAME ${name}
               POSITION_INDEPENDENT_CODE ON
               VERIFY_INTERFACE_HEADER_SETS ON
               INSTALL_RPATH "$ORIGIN"
               INSTALL_RPATH_USE_LINK_PATH ON
               VERSION "${PROJECT_VERSION}"
               SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
endfunction()

# tessera_add_layer(<target> <layer> [HEADERS <file>...] [SOURCES <file>...])
#
# Adds a layer to a library: public headers in include/tessera/<layer>/, and the sources beside the
# caller. Every header is installed, and checked to compile on its own (`./dev lint headers`).
function(tessera_add_layer target layer)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;SOURCES")
  _tessera_check_arguments(tessera_add_layer)
  set(include "${PROJECT_SOURCE_DIR}/include")
  list(TRANSFORM arg_HEADERS PREPEND "${include}/tessera/${layer}/")
  target_sources(
    ${target}
    PRIVATE ${arg_SOURCES}
    PUBLIC FILE_SET HEADERS BASE_DIRS "${include}" FILES ${arg_HEADERS})
endfunction()

# tessera_pch(<target> {<header>... | REUSE_FROM <other>})
#
# Precompiles heavy headers for a target, or reuses those of another target that is compiled alike.
# It pays from about three sources that include <torch/torch.h> (20 s each; 6 s with it, itself 50 s).
#
# What the headers instantiate costs 3 to 6 s per compilation even so, and our own part of a source 1 to
# 4 s. So with TESSERA_UNITY such sources are compiled eight at a time; a helper in an anonymous
# namespace then needs a name of its own among its neighbours.
function(tessera_pch target)
  set_target_properties(
    ${target} PROPERTIES UNITY_BUILD ${TESSERA_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(NOT TESSERA_PCH)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "REUSE_FROM" "")
  if(arg_REUSE_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_REUSE_FROM})
  else()
    target_precompile_headers(${target} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  endif()
  # Without this ccache cannot cache what a precompiled header enters.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# tessera_add_tool(<name> SOURCES <file>... [LIBRARIES <target>...])
#
# A program for users: bin/<name> in the build and in the installation. Links tessera::core.
function(tessera_add_tool name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  _tessera_check_arguments(tessera_add_tool)
  add_executable(${name} ${arg_SOURCES})
  tessera_configure_target(${name})
  target_link_libraries(${name} PRIVATE tessera::core ${arg_LIBRARIES})
  set_target_properties(
    ${name}
    PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
               INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}"
               INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${name} COMPONENT tools)
endfunction()

# tessera_add_bench(<name> SOURCES <file>... [LIBRARIES <target>...])
#
# A Google Benchmark program bench/<name>, part of the target tessera_bench that `./dev bench` runs.
# The name ends in _bench. Links tessera::core.
function(tessera_add_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  _tessera_check_arguments(tessera_add_bench)
  if(NOT name MATCHES "_bench$")
    message(FATAL_ERROR "tessera_add_bench: '${name}' does not end in _bench; rename it")
  endif()
  add_executable(${name} ${arg_SOURCES})
  tessera_configure_target(${name})
  target_link_libraries(${name} PRIVATE tessera::core ${arg_LIBRARIES} benchmark::benchmark_main)
  set_target_properties(
    ${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  add_dependencies(tessera_bench ${name})
endfunction()

# Stops on arguments that the calling function does not know.
macro(_tessera_check_arguments function)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
endmacro()
