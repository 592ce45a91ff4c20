# One interface target carries the flags of all of larder's own code.
add_library(larder_flags INTERFACE)
target_compile_definitions(larder_flags INTERFACE _GNU_SOURCE LARDER_VERSION="${PROJECT_VERSION}")
target_include_directories(larder_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(larder_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes
  -fno-strict-aliasing -fno-common -fstack-protector-strong)
if(LARDER_WERROR)
  target_compile_options(larder_flags INTERFACE -Werror)
endif()
if(LARDER_SANITIZE)
  add_compile_options(-fsanitize=${LARDER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LARDER_SANITIZE})
  # Tests that preload a library need the sanitizer's own to be shared, as gcc's is.
  if(CMAKE_C_COMPILER_ID STREQUAL "Clang" AND LARDER_SANITIZE MATCHES address)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-runtime-dir OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    add_link_options(-shared-libasan -Wl,-rpath,${runtime})
  endif()
  add_compile_definitions(LARDER_SANITIZED)
endif()
if(LARDER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
  add_compile_definitions(LARDER_SANITIZED)
endif()

# For libraries of which tests wrap functions at link time (lar_without_lto): with the plain code beside the other.
function(lar_fat_objects name)
  if(CMAKE_INTERPROCEDURAL_OPTIMIZATION)
    target_compile_options(${name} PRIVATE -ffat-lto-objects)
  endif()
endfunction()
