# Warnings are errors, for our own sources only (dependencies are SYSTEM includes).
# Fields left out of a designated initialiser keep their default on purpose.
add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
option(LOWTIDE_WARNINGS_AS_ERRORS "Off for compilers whose warnings nobody has seen yet" ON)
if(LOWTIDE_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()
if(LOWTIDE_SANITIZER)
  add_compile_options(-fsanitize=${LOWTIDE_SANITIZER} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOWTIDE_SANITIZER})
endif()
