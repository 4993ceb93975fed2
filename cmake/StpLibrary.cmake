# Targets: compile options, warnings, and how a module's library and tests are made. A module is one folder and one
# library, stp::<module>; its headers are included as they are installed, "stp/<module>/<file>.h".

# Compile options of every library here and of its users.
add_library(stp_options INTERFACE)
add_library(stp::options ALIAS stp_options)
set_target_properties(stp_options PROPERTIES EXPORT_NAME options)
target_compile_features(stp_options INTERFACE cxx_std_20)
# No fused multiply-adds where the source has none: figures and orders are the same on every processor.
target_compile_options(stp_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-ffp-contract=off>)
# g++ compiles about a tenth faster, with 150 MB more memory, if it collects its garbage less often.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
target_include_directories(stp_options INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>)  # stp/version.h
install(TARGETS stp_options EXPORT stp)

add_library(stp_warnings INTERFACE)
target_compile_options(stp_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers>"
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>  # g++ 12 warns of string concatenation, wrongly (GCC 105651)
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>  # unity builds have a generated main file
  # For CUDA sources the host's compiler gets nvcc's output, which is not pedantic.
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>")

# Code whose run time does not matter (options, JSON, tables) would take twice as long to build with -O3.
add_library(stp_cold INTERFACE)
target_compile_options(stp_cold INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>)

# stp::stp: all modules at once.
add_library(stp_all INTERFACE)
add_library(stp::stp ALIAS stp_all)
set_target_properties(stp_all PROPERTIES EXPORT_NAME stp)
install(TARGETS stp_all EXPORT stp)

# With STP_TOGETHER, modules that most programs link are compiled in two units, one of them for COLD modules and COLD_SOURCES:
# what their headers have in common is parsed and instantiated twice, not once for each module.
option(STP_TOGETHER "Compile most modules together: fastest from scratch on few cores" OFF)
if(STP_TOGETHER)
  foreach(group IN ITEMS hot cold)
    add_library(stp_${group}_modules STATIC)
    set_target_properties(stp_${group}_modules PROPERTIES EXPORT_NAME ${group}_modules UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_link_libraries(stp_${group}_modules PUBLIC stp_options PRIVATE $<BUILD_INTERFACE:stp_warnings>)
    target_include_directories(stp_${group}_modules PRIVATE ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR})
  endforeach()
  # -O3's inlining without its clones and loop transformations: compiled in 0.86 of the time, and no slower.
  target_compile_options(stp_hot_modules PRIVATE
    "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-O2;--param=max-inline-insns-auto=30>")
  target_link_libraries(stp_cold_modules PUBLIC stp_hot_modules PRIVATE $<BUILD_INTERFACE:stp_cold>)
  target_link_libraries(stp_hot_modules PUBLIC stp_cold_modules)
  install(TARGETS stp_hot_modules stp_cold_modules EXPORT stp)
endif()

# stp_add_library(NAME [COLD] [TOGETHER] SOURCES … [COLD_SOURCES …] [HEADERS …] [LINK …]): the library stp::NAME of the current
# folder, installed with its headers if there are any. COLD: its run time does not matter. COLD_SOURCES: the same for
# these sources alone. TOGETHER: see STP_TOGETHER. LINK: libraries that its headers use; the caller links those that only its
# SOURCES use to the target STP_COMPILED_IN, which this sets. Headers are included by their paths below the folder lib, or BASE.
function(stp_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "COLD;TOGETHER" "BASE;DESTINATION" "SOURCES;COLD_SOURCES;HEADERS;LINK")
  if(NOT ARG_BASE)
    set(ARG_BASE ${PROJECT_SOURCE_DIR}/lib)
    set(ARG_DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
  if(STP_TOGETHER AND ARG_TOGETHER)
    set(scope INTERFACE)
    set(compiled stp_hot_modules)
    if(ARG_COLD)
      set(compiled stp_cold_modules)
    endif()
    add_library(stp_${name} INTERFACE)
    target_sources(${compiled} PRIVATE ${ARG_SOURCES})
    target_sources(stp_cold_modules PRIVATE ${ARG_COLD_SOURCES})
    target_link_libraries(stp_${name} INTERFACE ${ARG_LINK} ${compiled})
    list(FILTER ARG_LINK EXCLUDE REGEX "^stp::")
    target_link_libraries(${compiled} PUBLIC ${ARG_LINK})
  else()
    set(scope PUBLIC)
    set(compiled stp_${name})
    add_library(stp_${name} ${ARG_SOURCES} ${ARG_COLD_SOURCES})
    target_link_libraries(stp_${name} PUBLIC stp_options ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:stp_warnings>)
    if(ARG_COLD)
      target_link_libraries(stp_${name} PRIVATE $<BUILD_INTERFACE:stp_cold>)
    endif()
  endif()
  set(STP_COMPILED_IN ${compiled} PARENT_SCOPE)
  add_library(stp::${name} ALIAS stp_${name})
  if(NOT ARG_HEADERS)
    return()
  endif()
  target_sources(stp_${name} ${scope} FILE_SET HEADERS BASE_DIRS ${ARG_BASE} FILES ${ARG_HEADERS})
  # Shared libraries find each other wherever the tree is installed.
  set_target_properties(stp_${name} PROPERTIES EXPORT_NAME ${name} INSTALL_RPATH "$ORIGIN")
  target_link_libraries(stp_all INTERFACE stp_${name})
  install(TARGETS stp_${name} EXPORT stp FILE_SET HEADERS DESTINATION ${ARG_DESTINATION})
endfunction()

# Tests are built as fast as can be: hardly optimised, and what most of them include is compiled once.
if(STP_BUILD_TESTS)
  add_library(stp_tests INTERFACE)
  target_compile_options(stp_tests INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>)
  target_compile_options(stp_tests INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${STP_TEST_CHECKS}>")
  target_link_libraries(stp_tests INTERFACE stp_options stp_warnings GTest::gmock nlohmann_json::nlohmann_json)
  add_library(stp_test_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/test_headers.cc)
  target_link_libraries(stp_test_headers PRIVATE stp_tests)
  target_precompile_headers(stp_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>
    <algorithm> <array> <atomic> <cmath> <condition_variable> <filesystem> <fstream> <functional> <map> <memory> <numeric>
    <optional> <random> <ranges> <regex> <set> <sstream> <string> <thread> <variant> <vector>)
endif()

# stp_add_test(NAME SOURCES … [LINK …] [LABELS …] [PREFIX …]): a GoogleTest program and its tests for CTest. Suites named
# Gpu… need a GPU, skip themselves where there is none, carry the label `gpu`, and run one at a time.
function(stp_add_test name)
  if(NOT STP_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "PREFIX" "SOURCES;LINK;LABELS")
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} stp_tests GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM stp_test_headers)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # for "support/…"
  target_compile_definitions(${name} PRIVATE STP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set(discover TEST_PREFIX "${ARG_PREFIX}" DISCOVERY_TIMEOUT 60)
  set(labels "")
  if(ARG_LABELS)
    set(labels LABELS "${ARG_LABELS}")
  endif()
  gtest_discover_tests(${name} TEST_FILTER -Gpu* ${discover} PROPERTIES ${labels} COST 0)
  if(STP_HAVE_CUDA)
    gtest_discover_tests(${name} TEST_FILTER Gpu* ${discover} PROPERTIES LABELS gpu RESOURCE_LOCK gpu)
  endif()
  if(threads IN_LIST ARG_LABELS)
    add_dependencies(stp_threads_tests ${name})
  endif()
endfunction()
