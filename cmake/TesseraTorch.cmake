# Finds the libtorch that Tessera is written for. Also installed, for tesseraConfig.cmake.

set(TESSERA_TORCH_VERSION 2.13)

# tessera_find_torch([REQUIRED] [DEFAULT_PREFIX <folder of a Python environment>])
#
# Defines the target `torch`, and `tessera_torch_dir`, where its package is. Looks at TESSERA_TORCH (the variable, or the environment's), then
# Torch_DIR and CMAKE_PREFIX_PATH as CMake always does, then at torch in the environment given.
# On failure: an error in a sentence if REQUIRED, else that sentence in `tessera_torch_error`.
function(tessera_find_torch)
  cmake_parse_arguments(PARSE_ARGV 0 arg "REQUIRED" "DEFAULT_PREFIX" "")
  set(error "")
  if(NOT TARGET torch)
    _tessera_locate_torch(config_dir "${arg_DEFAULT_PREFIX}")
    _tessera_judge_torch(error "${config_dir}")
    if(NOT error)
      _tessera_load_torch("${config_dir}")
    endif()
  endif()
  if(error AND arg_REQUIRED)
    message(FATAL_ERROR "${error}")
  endif()
  set(tessera_torch_dir "${config_dir}" PARENT_SCOPE)
  set(tessera_torch_error "${error}" PARENT_SCOPE)
endfunction()

# Sets `result` to the folder of TorchConfig.cmake, or to a false value.
function(_tessera_locate_torch result default_prefix)
  if(NOT "$ENV{TESSERA_TORCH}" STREQUAL "")
    set(TESSERA_TORCH "$ENV{TESSERA_TORCH}" CACHE PATH "Folder of the libtorch to use" FORCE)
  endif()
  set(suffixes share/cmake/Torch lib/cmake/Torch Torch)
  if(TESSERA_TORCH)
    find_path(config_dir TorchConfig.cmake PATHS "${TESSERA_TORCH}" PATH_SUFFIXES ${suffixes}
              NO_DEFAULT_PATH NO_CACHE)
  else()
    file(GLOB packages "${default_prefix}/lib/python3*/site-packages/torch")
    find_path(config_dir TorchConfig.cmake HINTS "${Torch_DIR}" PATHS ${packages}
              PATH_SUFFIXES ${suffixes} NO_CACHE)
  endif()
  string(REGEX REPLACE "/$" "" config_dir "${config_dir}")
  set(${result} "${config_dir}" PARENT_SCOPE)
endfunction()

# Sets `result` to what is wrong with the libtorch in `config_dir`, in a sentence, or to "".
function(_tessera_judge_torch result config_dir)
  set(needed "Tessera needs libtorch ${TESSERA_TORCH_VERSION}")
  set(remedy "run `./dev setup`, or set TESSERA_TORCH to the folder of a libtorch")
  string(APPEND remedy " ${TESSERA_TORCH_VERSION}")
  if(NOT config_dir)
    set(where "")
    if(TESSERA_TORCH)
      set(where " in TESSERA_TORCH=${TESSERA_TORCH}")
    endif()
    set(${result} "${needed}, but no libtorch was found${where}; ${remedy}." PARENT_SCOPE)
    return()
  endif()
  set(PACKAGE_VERSION "of unknown version")
  include("${config_dir}/TorchConfigVersion.cmake" OPTIONAL)
  string(REPLACE "." "\\." pattern "^${TESSERA_TORCH_VERSION}([.+]|$)")
  if(PACKAGE_VERSION MATCHES "${pattern}")
    set(${result} "" PARENT_SCOPE)
  else()
    set(${result} "${needed}, but found libtorch ${PACKAGE_VERSION} in ${config_dir}; ${remedy}."
        PARENT_SCOPE)
  endif()
endfunction()

# Loads torch's package without its side effects. Being a function keeps its variables from leaking.
function(_tessera_load_torch config_dir)
  # Torch would define a target `dummy` for protobuf, search for an MKL that its shared library does
  # not need, add the folders /lib/intel64 ... to every link, and warn about a missing libkineto.
  if(NOT TARGET protobuf::libprotobuf)
    add_library(protobuf::libprotobuf INTERFACE IMPORTED)
  endif()
  if(NOT TARGET caffe2::mkl)
    set(own_mkl ON)
  endif()
  set(CMAKE_DISABLE_FIND_PACKAGE_MKL ON)
  set(CMAKE_DISABLE_FIND_PACKAGE_MKLDNN ON)
  set(kineto_LIBRARY torch)
  set(Torch_DIR "${config_dir}")
  find_package(Torch CONFIG REQUIRED QUIET PATHS "${config_dir}" NO_DEFAULT_PATH)
  # What it caches would outlive a change of TESSERA_TORCH.
  foreach(variable Caffe2_DIR TORCH_LIBRARY c10_LIBRARY)
    unset(${variable} CACHE)
  endforeach()
  if(own_mkl AND TARGET caffe2::mkl)
    set_property(TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES)
  endif()
endfunction()
