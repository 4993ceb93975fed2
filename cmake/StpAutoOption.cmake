# stp_auto_option(NAME text): a part that is built where what it needs is found: AUTO (where it is), ON (an error where it is
# not) or OFF.
function(stp_auto_option name text)
  set(${name} AUTO CACHE STRING "${text}")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name} is \"${${name}}\"; use AUTO, ON or OFF")
  endif()
endfunction()
