# Warnings, options and the include root of everything that is compiled here.
add_library(stp_options INTERFACE)
add_library(stp::options ALIAS stp_options)
set_target_properties(stp_options PROPERTIES EXPORT_NAME options)
target_compile_features(stp_options INTERFACE cxx_std_20)
# No fused multiply-adds where the source has none: figures and orders are the same on every processor.
target_compile_options(stp_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-ffp-contract=off>)

# Headers lie beside their sources and are included as they are installed: "stp/<room>/<file>.h". In the build tree
# that path is a folder of links.
set(STP_INCLUDE_ROOT ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${STP_INCLUDE_ROOT}/stp)
target_include_directories(stp_options INTERFACE $<BUILD_INTERFACE:${STP_INCLUDE_ROOT}>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

add_library(stp_warnings INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # g++ 12 warns of string concatenation, wrongly (GCC 105651)
# Of CUDA sources the host's compiler sees what nvcc makes of them, which is not pedantic.
set(cuda_warnings -Xcompiler=-Wall,-Wextra,-Wshadow)
if(STP_WERROR)
  list(APPEND warnings -Werror)
  list(APPEND cuda_warnings -Werror=all-warnings)
endif()
target_compile_options(stp_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                              "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")

set_property(GLOBAL PROPERTY STP_ROOMS "")

# What tests of code with threads run: all that the thread sanitizer is to see, under the label `threads`.
add_custom_target(stp_threads_tests)

# stp_discover_tests(PROGRAM [label]): gives CTest the tests of a GoogleTest program. Suites named Gpu… need a GPU, skip
# themselves where there is none, and carry the label `gpu`; one runs at a time.
function(stp_discover_tests target)
  set(label "")
  if(ARGN)
    set(label PROPERTIES LABELS ${ARGN})
  endif()
  gtest_discover_tests(${target} TEST_FILTER -Gpu* DISCOVERY_TIMEOUT 60 ${label})
  if(STP_HAVE_CUDA)
    gtest_discover_tests(${target} TEST_FILTER Gpu* DISCOVERY_TIMEOUT 60 PROPERTIES LABELS gpu RESOURCE_LOCK gpu)
  endif()
  if(threads IN_LIST ARGN)
    add_dependencies(stp_threads_tests ${target})
  endif()
endfunction()

# stp_room(NAME FOLDER f [USES room…] [SOURCES more…] [WITHOUT prefix…] [LABEL label]): the library stp::NAME of the
# folder's sources, and the test NAME_test of its *_test.cc files, with that label; without the files that begin with one
# of the prefixes.
function(stp_room name)
  cmake_parse_arguments(ARG "" "FOLDER;LABEL" "USES;SOURCES;WITHOUT" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${ARG_FOLDER}/*.cc ${PROJECT_SOURCE_DIR}/${ARG_FOLDER}/*.cu)
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${ARG_FOLDER}/*_test.cc)
  if(tests)
    list(REMOVE_ITEM sources ${tests})
  endif()
  foreach(prefix IN LISTS ARG_WITHOUT)
    list(FILTER sources EXCLUDE REGEX "/${prefix}[^/]*$")
    list(FILTER tests EXCLUDE REGEX "/${prefix}[^/]*$")
  endforeach()
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${ARG_FOLDER} ${STP_INCLUDE_ROOT}/stp/${name} SYMBOLIC)

  add_library(stp_${name} ${sources} ${ARG_SOURCES})
  add_library(stp::${name} ALIAS stp_${name})
  set_target_properties(stp_${name} PROPERTIES EXPORT_NAME ${name})
  list(TRANSFORM ARG_USES PREPEND stp_)
  target_link_libraries(stp_${name} PUBLIC stp_options ${ARG_USES} nlohmann_json::nlohmann_json
                                    PRIVATE $<BUILD_INTERFACE:stp_warnings>)
  set_property(GLOBAL APPEND PROPERTY STP_ROOMS ${name})
  set_property(GLOBAL PROPERTY STP_FOLDER_${name} ${ARG_FOLDER})
  set_property(GLOBAL PROPERTY STP_WITHOUT_${name} ${ARG_WITHOUT})

  if(STP_BUILD_TESTS AND tests)
    add_executable(${name}_test ${tests})
    set_target_properties(${name}_test PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(${name}_test PRIVATE stp_${name} stp_warnings GTest::gmock GTest::gtest_main)
    target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # for "support/…"
    target_compile_definitions(${name}_test PRIVATE STP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_compile_options(${name}_test PRIVATE ${STP_TEST_OPTIONS})
    stp_discover_tests(${name}_test ${ARG_LABEL})
  endif()
endfunction()

# The room's headers, as paths below its folder. Each folder below lib/backend is a room of its own, built or not.
function(stp_room_headers name result)
  get_property(folder GLOBAL PROPERTY STP_FOLDER_${name})
  get_property(without GLOBAL PROPERTY STP_WITHOUT_${name})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  if(folder STREQUAL "lib/backend")
    list(FILTER headers EXCLUDE REGEX "/")
  endif()
  foreach(prefix IN LISTS without)
    list(FILTER headers EXCLUDE REGEX "^${prefix}")
  endforeach()
  set(${result} ${headers} PARENT_SCOPE)
endfunction()

# Writes the list of all schedule generators from a template: every lib/schedule/stp*.cc and baselines/*.cc defines
# `schedule_<file name>`, so that a new schedule is one new file. RESULT receives the written source.
function(stp_schedule_registry template result)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/lib/schedule/stp*.cc
       ${PROJECT_SOURCE_DIR}/baselines/*.cc)
  list(FILTER files EXCLUDE REGEX "_test\\.cc$")
  set(ours ${files})
  list(FILTER ours INCLUDE REGEX "^lib/")
  set(theirs ${files})
  list(FILTER theirs EXCLUDE REGEX "^lib/")
  list(SORT ours)
  list(SORT theirs)
  foreach(file IN LISTS ours theirs)
    get_filename_component(stem ${file} NAME_WE)
    string(APPEND declarations "extern const Generator schedule_${stem};\n")
    list(APPEND pointers "&schedule_${stem}")
  endforeach()
  list(JOIN pointers ", " pointers)
  set(written ${PROJECT_BINARY_DIR}/generated/generators.cc)
  configure_file(${template} ${written} @ONLY)
  set(${result} ${written} PARENT_SCOPE)
endfunction()
