# Writes OUTPUT, which defines the function NAME of namespace tyto: a view of the text of INPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <string_view>

namespace tyto {

std::string_view ${NAME}() {
  return \"${bytes}\";
}

}  // namespace tyto
")
