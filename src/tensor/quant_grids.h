// The grids of the iq types: the groups of values that a code can stand for. They are part of the
// format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tyto {

template <size_t kPlaces, size_t kGroup>
using Grid = std::array<std::array<int8_t, kGroup>, kPlaces>;

// What values can be. Of the iq2 and iq3 types these are magnitudes.
inline constexpr std::array<int8_t, 3> kLevelsIQ2 = {8, 25, 43};
inline constexpr std::array<int8_t, 8> kLevelsIQ3XXS = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<int8_t, 8> kLevelsIQ3S = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::array<int8_t, 3> kLevelsIQ1 = {-1, 0, 1};

extern const Grid<256, 8> kGridIQ2XXS;
extern const Grid<512, 8> kGridIQ2XS;
extern const Grid<1024, 8> kGridIQ2S;
extern const Grid<256, 4> kGridIQ3XXS;
extern const Grid<512, 4> kGridIQ3S;
extern const Grid<2048, 8> kGridIQ1;

}  // namespace tyto
