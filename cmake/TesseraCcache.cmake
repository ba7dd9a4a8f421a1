# Compiles through ccache where it is installed, unless the user chose a launcher.
#
# The sloppiness lets ccache serve compilations that use a precompiled header (see tessera_pch).

if(NOT PROJECT_IS_TOP_LEVEL OR DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()

find_program(TESSERA_CCACHE ccache)
mark_as_advanced(TESSERA_CCACHE)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${TESSERA_CCACHE}")
endif()
