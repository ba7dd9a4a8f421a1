# Compiles through ccache where it is installed, unless the user chose a launcher.
#
# The sloppiness lets ccache serve compilations that use a precompiled header (see tessera_pch). All
# clones share what is cached: paths are hashed as seen from the root, and debuggers are told them so.

if(NOT PROJECT_IS_TOP_LEVEL OR DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()

find_program(TESSERA_CCACHE ccache)
mark_as_advanced(TESSERA_CCACHE)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${TESSERA_CCACHE}")
  add_compile_options("-fdebug-prefix-map=${PROJECT_SOURCE_DIR}=.")
endif()
