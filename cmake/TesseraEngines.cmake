# Finds what the engines for several processes need, and adds them to a library.
#
# TESSERA_WITH_GLOO, TESSERA_WITH_MPI: AUTO builds the engine where its needs are met, ON insists, OFF
# leaves it out. What is left out is replaced by a stub that says what to install.

foreach(engine GLOO MPI)
  set(TESSERA_WITH_${engine} AUTO CACHE STRING "Build the engine ${engine}: AUTO, ON or OFF")
  set_property(CACHE TESSERA_WITH_${engine} PROPERTY STRINGS AUTO ON OFF)
endforeach()

# tessera_add_gloo(<target> SOURCE <file> STUB <file>)
#
# Adds the gloo engine, or its stub. libtorch contains gloo itself; only its headers are missing.
function(tessera_add_gloo target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE;STUB" "")
  find_path(TESSERA_GLOO_INCLUDE gloo/algorithm.h)
  mark_as_advanced(TESSERA_GLOO_INCLUDE)
  _tessera_decide_engine(GLOO TESSERA_GLOO_INCLUDE "gloo's headers" "libgloo-dev")
  if(with_engine)
    target_sources(${target} PRIVATE "${arg_SOURCE}")
    set_source_files_properties(
      "${arg_SOURCE}"
      TARGET_DIRECTORY ${target}
      PROPERTIES COMPILE_DEFINITIONS USE_C10D_GLOO INCLUDE_DIRECTORIES "${TESSERA_GLOO_INCLUDE}")
  else()
    target_sources(${target} PRIVATE "${arg_STUB}")
  endif()
endfunction()

# tessera_add_mpi(<target> SOURCES <file>... STUB <file>)
#
# Adds the mpi engine, or its stub. Links MPI's C library privately.
function(tessera_add_mpi target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "STUB" "SOURCES")
  # The project has no C; the wrapper for C++ names the same library, and its own beside it.
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  _tessera_decide_engine(MPI MPI_CXX_FOUND "MPI" "libopenmpi-dev and openmpi-bin")
  if(NOT with_engine)
    target_sources(${target} PRIVATE "${arg_STUB}")
    return()
  endif()
  set(libraries ${MPI_CXX_LIBRARIES})
  list(FILTER libraries EXCLUDE REGEX "mpi_cxx|mpicxx")
  target_sources(${target} PRIVATE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${libraries})
  set_source_files_properties(
    ${arg_SOURCES}
    TARGET_DIRECTORY ${target}
    PROPERTIES COMPILE_DEFINITIONS "OMPI_SKIP_MPICXX=1;MPICH_SKIP_MPICXX=1"
               INCLUDE_DIRECTORIES "${MPI_CXX_INCLUDE_DIRS}")
endfunction()

# Sets `with_engine`, and the global property TESSERA_HAS_<engine> for the tests; `found` names the
# variable that says if what it needs is there. Stops where the user insists on what cannot be had.
macro(_tessera_decide_engine engine found what packages)
  set(with_engine OFF)
  if(TESSERA_WITH_${engine} STREQUAL "AUTO" OR TESSERA_WITH_${engine})
    if(${found})
      set(with_engine ON)
    endif()
  endif()
  if(NOT with_engine AND NOT TESSERA_WITH_${engine} STREQUAL "AUTO" AND TESSERA_WITH_${engine})
    message(FATAL_ERROR "TESSERA_WITH_${engine}=${TESSERA_WITH_${engine}}, but ${what} cannot be "
                        "found; install ${packages}, or configure with -DTESSERA_WITH_${engine}=OFF.")
  endif()
  set_property(GLOBAL PROPERTY TESSERA_HAS_${engine} ${with_engine})
  if(NOT with_engine)
    message(STATUS "Tessera: without the engine ${engine} (needs ${packages})")
  endif()
endmacro()
