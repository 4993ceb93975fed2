# What `cmake --install` puts where: the rooms' libraries and headers, the package `stp` for find_package(stp), the
# program in bin, and under share/stp the data, with the same relative paths as in the source tree.
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY STP_ROOMS)
set(data_dir ${CMAKE_INSTALL_DATADIR}/stp)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stp)

# stp::stp: all rooms at once.
add_library(stp_all INTERFACE)
add_library(stp::stp ALIAS stp_all)
set_target_properties(stp_all PROPERTIES EXPORT_NAME stp)

set(libraries stp_options stp_all)
foreach(room IN LISTS rooms)
  get_property(folder GLOBAL PROPERTY STP_FOLDER_${room})
  target_link_libraries(stp_all INTERFACE stp_${room})
  # Where the libraries are shared ones, they find each other, and the program finds them, wherever the tree is put.
  set_target_properties(stp_${room} PROPERTIES INSTALL_RPATH "$ORIGIN")
  list(APPEND libraries stp_${room})
  stp_room_headers(${room} headers)
  foreach(header IN LISTS headers)
    get_filename_component(below ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${folder}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stp/${room}/${below})
  endforeach()
endforeach()
file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(stp PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
install(FILES ${STP_INCLUDE_ROOT}/stp/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stp)
install(TARGETS stp RUNTIME)
install(TARGETS ${libraries} EXPORT stp)

# The package.
install(EXPORT stp NAMESPACE stp:: FILE stpTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/stpConfig.cmake.in ${PROJECT_BINARY_DIR}/stpConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stpConfig.cmake ${PROJECT_BINARY_DIR}/stpConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/StpOpenBLAS.cmake ${CMAKE_CURRENT_LIST_DIR}/StpCudaLibraries.cmake
        DESTINATION ${package_dir})

# The data.
foreach(folder IN ITEMS lib/model/configs lib/cluster/profiles results/published results/reference/sensitivity results/schema)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${data_dir}/${folder} FILES_MATCHING PATTERN *.json)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/results/claims.json DESTINATION ${data_dir}/results)
file(GLOB scenarios CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scenarios/*.json)
install(FILES ${scenarios} DESTINATION ${data_dir}/scenarios)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/plots DESTINATION ${data_dir}
        PATTERN __pycache__ EXCLUDE PATTERN *_test.py EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
