# Finds what the Python package needs: an interpreter with its headers, and torch's own binding
# library for it.
#
# TESSERA_WITH_PYTHON: AUTO builds the package where its needs are met, ON insists, OFF leaves it out.

set(TESSERA_WITH_PYTHON AUTO CACHE STRING "Build the Python package: AUTO, ON or OFF")
set_property(CACHE TESSERA_WITH_PYTHON PROPERTY STRINGS AUTO ON OFF)

# tessera_find_python(<folder of a Python environment>)
#
# Sets `tessera_has_python` and defines the target `tessera_torch_python`, or says what is missing.
function(tessera_find_python default_prefix)
  set(tessera_has_python OFF PARENT_SCOPE)
  # An interpreter is not built with the sanitizers' runtime.
  if(TESSERA_SANITIZE)
    return()
  endif()
  if(NOT TESSERA_WITH_PYTHON STREQUAL "AUTO" AND NOT TESSERA_WITH_PYTHON)
    return()
  endif()
  if(NOT Python3_EXECUTABLE AND EXISTS "${default_prefix}/bin/python")
    set(Python3_EXECUTABLE "${default_prefix}/bin/python" CACHE FILEPATH "Python interpreter")
  endif()
  find_package(Python3 QUIET COMPONENTS Interpreter Development.Module)
  find_library(
    TESSERA_TORCH_PYTHON torch_python PATHS "${tessera_torch_dir}/../../../lib" NO_DEFAULT_PATH)
  mark_as_advanced(TESSERA_TORCH_PYTHON)
  # torch's extension for another version of Python is none for this one.
  get_filename_component(torch_package "${tessera_torch_dir}/../../.." ABSOLUTE)
  set(torch_extension "${torch_package}/_C.${Python3_SOABI}.so")
  set(missing "")
  if(NOT Python3_FOUND)
    set(missing "Python 3 with its headers (Debian: python3-dev)")
  elseif(NOT TESSERA_TORCH_PYTHON OR NOT EXISTS "${torch_extension}")
    set(missing "a torch package for Python ${Python3_VERSION} in ${torch_package}")
  endif()
  if(missing)
    if(NOT TESSERA_WITH_PYTHON STREQUAL "AUTO")
      message(FATAL_ERROR "TESSERA_WITH_PYTHON=${TESSERA_WITH_PYTHON}, but there is no ${missing}.")
    endif()
    message(STATUS "Tessera: without the Python package (needs ${missing})")
    return()
  endif()
  add_library(tessera_torch_python INTERFACE)
  target_include_directories(tessera_torch_python SYSTEM INTERFACE ${Python3_INCLUDE_DIRS})
  target_link_libraries(tessera_torch_python INTERFACE "${TESSERA_TORCH_PYTHON}")
  set(tessera_has_python ON PARENT_SCOPE)
  set(tessera_python_executable "${Python3_EXECUTABLE}" PARENT_SCOPE)
  set(tessera_python_suffix ".${Python3_SOABI}.so" PARENT_SCOPE)
endfunction()

# Sets TESSERA_TORCH to the torch that the interpreter of the build imports, unless it is set.
function(tessera_use_torch_of_python)
  if(TESSERA_TORCH OR NOT "$ENV{TESSERA_TORCH}" STREQUAL "")
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(TESSERA_TORCH "${folder}" CACHE PATH "Folder of the libtorch to use" FORCE)
endfunction()
