// Every function of the kernels is inlined into its table's entry and local to its instruction
// set's namespace: one that was emitted from a wide translation unit could otherwise be the copy
// the linker keeps for all.
#pragma once

#define TYTO_INLINE [[gnu::always_inline]] static inline
