// The dimensions of images by name: one list for whoever writes, reads or compares them.
#pragma once

#include <string>

#include "device/npu/formats/air_abi.h"

namespace tyto {

struct DimField {
  const char* name;
  uint32_t AirDims::* member;
  bool is_optional = false;  // manifests of before it are without it
};
constexpr DimField kDimFields[] = {
    {"layers", &AirDims::layers},
    {"emb", &AirDims::emb},
    {"heads", &AirDims::heads},
    {"kv_heads", &AirDims::kv_heads},
    {"head_dim", &AirDims::head_dim},
    {"hidden", &AirDims::hidden},
    {"vocab", &AirDims::vocab},
    {"seq", &AirDims::seq},
    {"qkv_bias", &AirDims::qkv_bias, true},
    {"qk_norm", &AirDims::qk_norm, true},
    {"like", &AirDims::like, true},
};

// "layers 2 and not 16, emb 256 and not 2048": what differs, with both numbers; empty: nothing.
std::string dims_difference(const AirDims& has, const AirDims& wanted);

}  // namespace tyto
