# Run at each build: writes the commit that is built into OUTPUT, as a header, if it changed.
#   cmake -D SOURCE=... -D OUTPUT=... -D COMMIT=... -P ReverbCommit.cmake
# COMMIT, where it is given, stands for what git would say: for builds of a source archive.
if(NOT COMMIT)
  find_program(GIT git)
  # A folder inside somebody else's repository is not ours.
  if(GIT AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(COMMIT AND changes)
      string(APPEND COMMIT ", changed")
    endif()
  endif()
endif()
set(text "#define REVERB_COMMIT \"${COMMIT}\"\n")
set(former "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} former)
endif()
if(NOT text STREQUAL former)
  file(WRITE ${OUTPUT} "${text}")
endif()
