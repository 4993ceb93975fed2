# The target stp::openblas. Debian's package of OpenBLAS for CMake only sets variables.
if(NOT TARGET stp::openblas)
  find_package(OpenBLAS REQUIRED)
  add_library(stp::openblas INTERFACE IMPORTED)
  set_target_properties(stp::openblas PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${OpenBLAS_INCLUDE_DIRS}"
                                                 INTERFACE_LINK_LIBRARIES "${OpenBLAS_LIBRARIES}")
endif()
