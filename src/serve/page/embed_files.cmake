# Writes OUTPUT, which defines page_files() with the bytes of FILES (separated by commas). The same files give the same
# text, whatever the machine or the time.
set(type_html "text/html; charset=utf-8")
set(type_mjs "text/javascript; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_svg "image/svg+xml")

string(REPLACE "," ";" files "${FILES}")
set(rows "")
foreach(file ${files})
  cmake_path(GET file FILENAME name)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: no content type is known for .${extension}; add it to embed_files.cmake")
  endif()
  set(path "/page/${name}")
  if(name STREQUAL "index.html")
    set(path "/")
  endif()
  file(SHA256 ${file} hash)
  string(SUBSTRING "${hash}" 0 32 hash)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(APPEND rows "    {\"${path}\", \"${type_${extension}}\", \"\\\"${hash}\\\"\", \"${bytes}\"sv},\n")
endforeach()

file(WRITE ${OUTPUT} "#include \"serve/page/page_files.h\"

namespace tyto {
namespace {

using namespace std::string_view_literals;

constexpr PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

}  // namespace tyto
")
