# Sourced by the scripts that fetch other people's work from npm's registry.

# Holds a llama.cpp release as a git bundle (llama/gitRelease.bundle). The release that our vectors come from and that the
# llama.cpp plug-in is built and tested against.
llama_cpp_package=node-llama-cpp@3.22.1
llama_cpp_bundle=llama/gitRelease.bundle

# unpack_npm_package NAME@VERSION FOLDER: the package's files in FOLDER; status 1 if npm cannot fetch it.
unpack_npm_package() {
  unpack_folder=$(mktemp -d)
  if ! (cd "$unpack_folder" && timeout 300 npm pack --silent "$1" > packed 2> /dev/null); then
    rm -rf "$unpack_folder"
    return 1
  fi
  mkdir -p "$2"
  tar -xzf "$unpack_folder/$(tail -n 1 "$unpack_folder/packed")" -C "$2" --strip-components=1
  rm -rf "$unpack_folder"
}
