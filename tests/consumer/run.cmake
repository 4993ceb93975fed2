# Installs the build tree BUILD_DIR below WORK_DIR, then uses what was installed as a stranger would: the consumer is
# configured, built and run with it, and bin/stp runs on the data beside it.
#
#   cmake -D BUILD_DIR=… -D WORK_DIR=… -D SOURCE_DIR=… -D GENERATOR=… -D CXX=… [-D CXX_FLAGS=…] [-D BUILD_TYPE=…] -P run.cmake
function(run)
  cmake_parse_arguments(ARG "" "OUTPUT;FOLDER" "COMMAND" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${WORK_DIR})
  endif()
  execute_process(COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${ARG_FOLDER} RESULT_VARIABLE failed OUTPUT_VARIABLE out
                  ERROR_VARIABLE err)
  if(failed)
    list(JOIN ARG_COMMAND " " command)
    message(FATAL_ERROR "${command}\nended with ${failed}\n${out}${err}")
  endif()
  if(ARG_OUTPUT)
    set(${ARG_OUTPUT} ${out} PARENT_SCOPE)
  endif()
endfunction()

unset(ENV{STP_DATA_DIR})
set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR}/elsewhere)
run(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# Nothing of what is installed may lead back to the trees that it came from.
file(GLOB_RECURSE texts ${prefix}/*.cmake ${prefix}/*.h ${prefix}/*.json ${prefix}/*.py)
foreach(text IN LISTS texts)
  file(READ ${text} content)
  foreach(tree IN ITEMS ${BUILD_DIR} ${SOURCE_DIR})
    string(FIND "${content}" "${tree}/" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${text} names ${tree}")
    endif()
  endforeach()
endforeach()

run(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B consumer -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${prefix}
            -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${CXX_FLAGS} -D CMAKE_BUILD_TYPE=${BUILD_TYPE})
run(COMMAND ${CMAKE_COMMAND} --build consumer)
run(COMMAND consumer/consumer OUTPUT said)
if(NOT said MATCHES "step time [1-9][0-9]*\\.[0-9]+ s")
  message(FATAL_ERROR "the consumer said: ${said}")
endif()

# The program must find the data beside it: those are marked, so that no other copy can pass for them.
set(marked ${prefix}/share/stp/scenarios/timelines.json)
file(READ ${marked} content)
string(JSON content SET "${content}" title "\"the installed one\"")
file(WRITE ${marked} "${content}")
run(COMMAND ${prefix}/bin/stp simulate timelines --json - FOLDER ${WORK_DIR}/elsewhere OUTPUT record)
string(JSON title GET "${record}" scenario title)
string(JSON step GET "${record}" results 2 step_time_s)
if(NOT title STREQUAL "the installed one" OR NOT step GREATER 0)
  message(FATAL_ERROR "bin/stp answered with title \"${title}\" and a step of ${step} s")
endif()
run(COMMAND ${prefix}/bin/stp reproduce timelines --no-plots --out figures FOLDER ${WORK_DIR}/elsewhere)
if(NOT EXISTS ${WORK_DIR}/elsewhere/figures/summary.json)
  message(FATAL_ERROR "bin/stp reproduce left no summary.json")
endif()
message(STATUS "${said}")
