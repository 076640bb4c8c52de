// Whether an image is what it is taken for. XRT compares no sizes: an image of another model would
// load, and its DMAs leave the buffers.
#pragma once

#include <cstdint>
#include <string>

#include "device/npu/formats/air_models.h"
#include "device/npu/store/image_facts.h"

namespace tyto {

// What kernels are compiled for, and its name: "llama-3.2-1b".
struct NamedDims {
  std::string name;
  AirDims dims;
};

// Whether a program is compiled for a padded length of the prompt.
bool depends_on_prompt(std::string_view program);

// Whether images of a program that were built for one of these run the other: the padded length of
// a prompt matters to the programs of prompts alone.
bool same_images(std::string_view program, AirDims built, const AirDims& wanted);

// Throws an Error that names `where` and gives both numbers where the image contradicts the
// argument list of `program` for that shape: its dimensions, its entry, how many arguments there
// are, and which bytes of them are touched.
void check_fit(const ImageFacts& facts, const AirProgram& program, const NamedDims& shape,
               const std::string& where);

// Two streams of a fused decode that are one position apart: a word that depends on it is the
// length itself, or the place of the new position in the caches.
void check_lengths(const ImageFacts& longer, const ImageFacts& shorter, uint32_t window,
                   const NamedDims& shape, const std::string& where);

}  // namespace tyto
