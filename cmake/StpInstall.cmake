# What `cmake --install` installs besides the libraries and their headers (StpLibrary.cmake): the package `stp` for
# find_package(stp), the programs in bin, and under share/stp the data, with the same relative paths as in the source tree.
include(CMakePackageConfigHelpers)
set(data_dir ${CMAKE_INSTALL_DATADIR}/stp)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stp)

file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(stp stp_run PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
install(TARGETS stp stp_run RUNTIME)
install(FILES ${PROJECT_BINARY_DIR}/generated/stp/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stp)

# The package.
install(EXPORT stp NAMESPACE stp:: FILE stpTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/stpConfig.cmake.in ${PROJECT_BINARY_DIR}/stpConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stpConfig.cmake ${PROJECT_BINARY_DIR}/stpConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/StpOpenBLAS.cmake ${CMAKE_CURRENT_LIST_DIR}/StpCudaLibraries.cmake
        DESTINATION ${package_dir})

# The man page and the completion of shells, written by the program itself.
add_custom_command(OUTPUT stp.1 stp.bash stp.fish
                   COMMAND stp man > stp.1
                   COMMAND stp completion bash > stp.bash
                   COMMAND stp completion fish > stp.fish
                   DEPENDS stp WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM)
add_custom_target(stp_manual ALL DEPENDS stp.1 stp.bash stp.fish)
install(FILES ${PROJECT_BINARY_DIR}/stp.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_BINARY_DIR}/stp.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME stp)
install(FILES ${PROJECT_BINARY_DIR}/stp.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The data.
foreach(folder IN ITEMS models profiles results/published results/reference/sensitivity results/schema scenarios)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${data_dir}/${folder} FILES_MATCHING PATTERN *.json)
endforeach()
foreach(name IN ITEMS claims answers reference/ablation reference/splits reference/gpu-h200/predicted)
  cmake_path(GET name PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/results/${name}.json DESTINATION ${data_dir}/results/${folder})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/plots DESTINATION ${data_dir}
        PATTERN __pycache__ EXCLUDE PATTERN tests EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
