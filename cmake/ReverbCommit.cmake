# Runs with each build: writes the current commit into OUTPUT, a header, if it has changed.
#   cmake -D SOURCE=... -D OUTPUT=... -D COMMIT=... -P ReverbCommit.cmake
# COMMIT, if set, replaces git's output: for builds of a source archive.
if(NOT COMMIT)
  find_program(GIT git)
  # Ignores the repository of a parent directory.
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
set(previous "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} previous)
endif()
if(NOT text STREQUAL previous)
  file(WRITE ${OUTPUT} "${text}")
endif()
