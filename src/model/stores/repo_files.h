// Which files of a repository make one model.
#pragma once

#include <string>
#include <vector>

namespace tyto {

// `all` are the paths in the repository, or in a local snapshot of it. `asked` is what stands
// behind the colon of "org/repo:asked", and may be
// - empty: the checkpoint (config.json and safetensors or a q4nx bundle in the first folder, with
//   the files of the tokenizer), otherwise the only GGUF, otherwise the one GGUF of Q4_K_M, or else
//   of Q8_0, which is llama.cpp's order;
// - a file's name, with or without its folders: that file, and the other parts of a split GGUF;
// - a quantisation in any case (Q4_K_M, bf16, UD-Q4_K_XL): the GGUF whose path has it between
//   separators. Of unsloth's dynamic and a plain one (UD-Q4_K_M, Q4_K_M) the plain one is meant.
// Projectors of images, importance matrices and draft models are no models of their own.
//
// Paths come sorted, so that the first part of a split file is the first. None or several models
// are a usage Error that names what there is; a part that is missing is an input Error.
std::vector<std::string> files_of_model(const std::vector<std::string>& all,
                                        const std::string& asked);

// One of a repository's models, whole or not.
struct RepoModel {
  std::string asked;               // what means it behind the colon; empty: the checkpoint
  std::vector<std::string> files;  // that are there
  std::string missing;             // "x-00001-of-00002.gguf: part 2 of 2 is not there", or empty
};

// All of them; never an Error.
std::vector<RepoModel> models_of_repository(const std::vector<std::string>& all);

}  // namespace tyto
