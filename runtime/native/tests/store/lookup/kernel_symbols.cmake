# Fails where an object of OBJECTS defines a weak or unique function, which the linker could take for
# another object's.
if(NOT OBJECTS)
  message(FATAL_ERROR "no kernel objects to look at")
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [VvWwu] [^\n]*" shared "${symbols}")
  if(shared)
    message(SEND_ERROR "${object} shares code with other objects:\n${shared}")
  endif()
endforeach()
