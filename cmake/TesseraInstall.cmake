# Installs the libraries as the CMake package `tessera` with the components `core` and `tessera`.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")

install(TARGETS tessera_core EXPORT tesseraCoreTargets FILE_SET HEADERS)
install(EXPORT tesseraCoreTargets NAMESPACE tessera:: DESTINATION "${package_dir}")

if(TESSERA_BUILD_TORCH)
  get_target_property(header_sets tessera_tessera HEADER_SETS)
  if(header_sets)
    install(TARGETS tessera_tessera EXPORT tesseraTargets FILE_SET HEADERS)
  else()
    install(TARGETS tessera_tessera EXPORT tesseraTargets)
  endif()
  install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION "${package_dir}")
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/TesseraTorch.cmake" DESTINATION "${package_dir}")
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/tesseraConfig.cmake.in" "${PROJECT_BINARY_DIR}/tesseraConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tesseraConfig.cmake"
              "${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake" DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
