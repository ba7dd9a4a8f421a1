# The functions with which each folder of tests declares its tests.

include(GoogleTest)

# tessera_add_test(<name> SOURCES <file>... LABEL {fast|ranks|process}
#                  [LIBRARIES <target>...] [TIMEOUT <seconds>] [PROCESSORS <n>] [WHOLE_BINARY])
#
# A GoogleTest program. Links tessera::core, or LIBRARIES in its stead. CTest gets one test per TEST,
# each in its own process; with WHOLE_BINARY one test for the program, for those that link torch and
# would pay its start of half a second again and again. TIMEOUT is for one CTest test (default:
# 60 for fast, 120 for ranks, 300 for process), and five times that under a sanitizer. PROCESSORS is
# for ranks that poll: CTest then starts no others beside it than there are processors left.
function(tessera_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WHOLE_BINARY" "LABEL;TIMEOUT;PROCESSORS"
                        "SOURCES;LIBRARIES")
  _tessera_check_arguments(tessera_add_test)
  _tessera_test_properties(tessera_add_test)
  if(NOT arg_LIBRARIES)
    set(arg_LIBRARIES tessera::core)
  endif()
  add_executable(${name} ${arg_SOURCES})
  tessera_configure_target(${name})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  if(arg_WHOLE_BINARY)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties})
  else()
    gtest_discover_tests(
      ${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
  endif()
endfunction()

# tessera_add_script_test(<name> COMMAND <word>... LABEL {fast|ranks|process} [TIMEOUT <seconds>]
#                         [PROCESSORS <n>])
#
# A test that is a command; it passes when that exits with 0, and is skipped when that is 77.
function(tessera_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT;PROCESSORS" "COMMAND")
  _tessera_check_arguments(tessera_add_script_test)
  _tessera_test_properties(tessera_add_script_test)
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES ${properties} SKIP_RETURN_CODE 77)
endfunction()

# tessera_add_rank_tests(<name> PROGRAM <target> [ARGUMENTS <word>...] [RANKS <n>] [TIMEOUT <seconds>])
#
# A program that is one rank, started as processes over gloo (4 unless RANKS is given) and over mpi (3):
# tests <name>_on_gloo and <name>_on_mpi, as far as the build has those.
function(tessera_add_rank_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROGRAM;RANKS;TIMEOUT" "ARGUMENTS")
  _tessera_check_arguments(tessera_add_rank_tests)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 180)
  endif()
  set(gloo_ranks 4)
  set(mpi_ranks 3)
  if(arg_RANKS)
    set(gloo_ranks ${arg_RANKS})
    set(mpi_ranks ${arg_RANKS})
  endif()
  if(TESSERA_BUILD_TOOLS AND NOT TESSERA_WITH_GLOO STREQUAL "OFF")
    tessera_add_script_test(
      ${name}_on_gloo
      COMMAND tessera_run --nproc-per-node ${gloo_ranks} $<TARGET_FILE:${arg_PROGRAM}>
              ${arg_ARGUMENTS} --engine gloo
      LABEL process TIMEOUT ${arg_TIMEOUT})
  endif()
  if(MPIEXEC_EXECUTABLE AND NOT TESSERA_WITH_MPI STREQUAL "OFF")
    tessera_add_script_test(
      ${name}_on_mpi
      COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe -n ${mpi_ranks}
              $<TARGET_FILE:${arg_PROGRAM}> ${arg_ARGUMENTS} --engine mpi
      LABEL process TIMEOUT ${arg_TIMEOUT} PROCESSORS ${mpi_ranks})
  endif()
endfunction()

# Sets `properties` from arg_LABEL, arg_TIMEOUT and arg_PROCESSORS.
macro(_tessera_test_properties function)
  set(default_timeout_fast 60)
  set(default_timeout_ranks 120)
  set(default_timeout_process 300)
  if(NOT DEFINED default_timeout_${arg_LABEL})
    message(FATAL_ERROR "${function}: ${name} has LABEL '${arg_LABEL}'; "
                        "give one of fast, ranks, process")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${default_timeout_${arg_LABEL}})
  endif()
  if(TESSERA_SANITIZE)
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  # Memory that was never written holds a pattern, so that reading it is wrong every time.
  set(properties LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS}
                 ENVIRONMENT MALLOC_PERTURB_=165)
endmacro()
