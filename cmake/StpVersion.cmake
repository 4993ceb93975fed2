# stp/version.h: version, git revision and whether the tree had changes, as of configuring.
set(STP_GIT_REVISION "")
set(STP_GIT_DIRTY 0)
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} rev-parse HEAD OUTPUT_VARIABLE STP_GIT_REVISION
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} status --porcelain --untracked-files=no
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(STP_GIT_DIRTY 1)
  endif()
  # Configure again when the revision moves.
  if(EXISTS ${PROJECT_SOURCE_DIR}/.git/logs/HEAD)
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.git/logs/HEAD)
  endif()
endif()
configure_file(${PROJECT_SOURCE_DIR}/lib/report/version.h.in ${STP_INCLUDE_ROOT}/stp/version.h @ONLY)
