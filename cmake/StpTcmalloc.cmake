# The allocator of gperftools, which all programs link where it is found: threads that free what others have allocated
# do not wait for each other. STP_TCMALLOC is AUTO (where it is found), ON (an error where it is not) or OFF. Sanitizers
# have their own.
include(StpAutoOption)
stp_auto_option(STP_TCMALLOC "The allocator tcmalloc: AUTO (where it is found), ON or OFF")
if(STP_TCMALLOC STREQUAL "OFF" OR STP_SANITIZE)
  return()
endif()
find_library(STP_TCMALLOC_LIBRARY NAMES tcmalloc_minimal libtcmalloc_minimal.so.4)
mark_as_advanced(STP_TCMALLOC_LIBRARY)
if(STP_TCMALLOC_LIBRARY)
  string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " -Wl,--push-state,--no-as-needed ${STP_TCMALLOC_LIBRARY} -Wl,--pop-state")
  cmake_path(GET STP_TCMALLOC_LIBRARY PARENT_PATH folder)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)  # where the loader does not look
    string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " -Wl,-rpath,${folder}")
  endif()
elseif(STP_TCMALLOC STREQUAL "ON")
  message(FATAL_ERROR "STP_TCMALLOC is ON, but libtcmalloc_minimal is not found; install libtcmalloc-minimal4 or use -D STP_TCMALLOC=OFF")
else()
  message(STATUS "The C library's allocator: libtcmalloc_minimal is not found")
endif()
