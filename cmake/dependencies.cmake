# Every library larder needs, as imported targets. All of them are Debian 12 packages; hiredis may be missing.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(LIBUV REQUIRED IMPORTED_TARGET libuv>=1.44)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson>=1.7)
pkg_check_modules(LMDB REQUIRED IMPORTED_TARGET lmdb>=0.9.24)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1>=0.2)
# Optional: recall memory shared through Redis or Valkey (shared.url).
pkg_check_modules(HIREDIS IMPORTED_TARGET hiredis>=0.14)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8)

# llhttp: the library where the system has it, else the C sources that Debian's node-llhttp carries.
find_path(LLHTTP_INCLUDE llhttp.h PATHS /usr/share/include/llhttp /usr/include REQUIRED)
find_library(LLHTTP_LIBRARY llhttp)
if(LLHTTP_LIBRARY)
  add_library(larder_llhttp INTERFACE)
  target_link_libraries(larder_llhttp INTERFACE ${LLHTTP_LIBRARY})
  target_include_directories(larder_llhttp SYSTEM INTERFACE ${LLHTTP_INCLUDE})
else()
  find_path(LLHTTP_SOURCES llhttp.c PATHS /usr/share/llhttp NO_DEFAULT_PATH REQUIRED)
  add_library(larder_llhttp STATIC
    ${LLHTTP_SOURCES}/api.c ${LLHTTP_SOURCES}/http.c ${LLHTTP_SOURCES}/llhttp.c)
  target_include_directories(larder_llhttp SYSTEM PUBLIC ${LLHTTP_INCLUDE})
  target_compile_options(larder_llhttp PRIVATE -w -O2)
endif()
