# stp/version.h: version, git revision and whether there are changes or untracked files that git does not ignore, as of each build. Included, this makes the
# target stp_version; run as a script (-P) by that target, it writes the header, only if it would change.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  find_package(Git QUIET)
  set(write_version ${CMAKE_COMMAND} -D GIT=${GIT_EXECUTABLE} -D SOURCE=${PROJECT_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
                    -D BUILD_TYPE=${CMAKE_BUILD_TYPE} -D HEADER=${PROJECT_BINARY_DIR}/generated/stp/version.h
                    -P ${CMAKE_CURRENT_LIST_FILE})
  execute_process(COMMAND ${write_version} COMMAND_ERROR_IS_FATAL ANY)
  add_custom_target(stp_version COMMAND ${write_version} BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/stp/version.h VERBATIM)
  return()
endif()

set(PROJECT_VERSION ${VERSION})
set(CMAKE_BUILD_TYPE ${BUILD_TYPE})
set(STP_GIT_REVISION "")
set(STP_GIT_DIRTY 0)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse HEAD RESULT_VARIABLE failed OUTPUT_VARIABLE STP_GIT_REVISION
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    set(STP_GIT_REVISION "")
  endif()
  execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(STP_GIT_DIRTY 1)
  endif()
endif()
configure_file(${SOURCE}/lib/stp/report/version.h.in ${HEADER} @ONLY)
