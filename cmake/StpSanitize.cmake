# Compile and link flags of STP_SANITIZE. With g++'s address sanitizer, STP_DROP_FRAMES has the flag of code whose functions
# keep no stack frames once they have returned, STP_TEST_CHECKS those of the tests' own code.
set_property(CACHE STP_SANITIZE PROPERTY STRINGS "" address thread)
if(STP_SANITIZE STREQUAL "address")
  # Of undefined behaviour this leaves out what the address sanitizer finds where it is used (null, ends of objects,
  # pointers past them), the types of objects behind pointers to bases, which nothing here casts unchecked, and alignment,
  # which costs much compile time and is checked where bytes are read (tests/fuzz).
  set(flags -fsanitize=address,undefined -fno-sanitize=null,vptr,object-size,pointer-overflow,alignment -fno-sanitize-recover=all)
elseif(STP_SANITIZE STREQUAL "thread")
  set(flags -fsanitize=thread)
elseif(STP_SANITIZE)
  message(FATAL_ERROR "STP_SANITIZE is \"${STP_SANITIZE}\"; use address, thread or nothing")
endif()
if(STP_SANITIZE)
  if(STP_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The sanitizer keeps old stack frames to find uses after a return, which costs most where small functions are called all
    # the time: emulated kernels take three to five times as long.
    set(STP_DROP_FRAMES --param=asan-use-after-return=0)
    # Accesses are checked by calls, and variables not for uses behind their scope: tests would take a third longer to compile.
    set(STP_TEST_CHECKS --param=asan-instrumentation-with-call-threshold=0 -fno-sanitize-address-use-after-scope)
  endif()
  # g++ 12 warns, wrongly, of standard headers under sanitizers.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags};-g1;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>")
  add_link_options(${flags})
endif()
