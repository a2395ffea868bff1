// Matrices in panels: the layout that streams.
//
// A panel holds PANEL_COLUMNS outputs of a weight: for each step along the depth, the columns' numbers lie together,
// PanelStep::DEPTH of each. So a panel is read from its first byte to its last whatever the number of rows, and the
// prefetch runs into the next one.
#pragma once

#include "isa.h"

namespace ISA {

constexpr int PREFETCH_BYTES = 4096;

static inline int64_t panel_elements(int64_t depth) {
    return round_up(depth, DEPTH_UNIT) * PANEL_COLUMNS;
}

// ROWS rows of inputs times one panel. depth is a multiple of DEPTH_UNIT. Few rows are summed in several chains, for a
// chain waits for each of its additions.
template <typename T, int ROWS>
static inline void multiply_panel(
    const Operand<T> *input, int64_t stride, const T *panel, int64_t depth, Vec (*output)[2]
) {
    using Step = PanelStep<T>;
    constexpr int CHAINS = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;
    constexpr int STEP_ELEMENTS = PANEL_COLUMNS * Step::DEPTH;
    Vec sums[CHAINS][ROWS][2];
    for (int chain = 0; chain < CHAINS; chain++)
        for (int row = 0; row < ROWS; row++) sums[chain][row][0] = sums[chain][row][1] = splat(0.0f);
    for (int64_t at = 0; at < depth; at += CHAINS * Step::DEPTH) {
#pragma GCC unroll 4
        for (int chain = 0; chain < CHAINS; chain++) {
            for (int64_t line = 0; line < STEP_ELEMENTS * (int64_t)sizeof(T); line += 64)
                _mm_prefetch((const char *)panel + PREFETCH_BYTES + line, _MM_HINT_T0);
            Step::template run<ROWS>(input + at + chain * Step::DEPTH, stride, panel, sums[chain]);
            panel += STEP_ELEMENTS;
        }
    }
    for (int row = 0; row < ROWS; row++)
        for (int side = 0; side < 2; side++) {
            Vec total = sums[0][row][side];
            for (int chain = 1; chain < CHAINS; chain++) total = add(total, sums[chain][row][side]);
            output[row][side] = total;
        }
}

// Any number of rows in tiles of about equal height. finish(row, sums) gets each row's two vectors.
template <typename T, typename Finish>
static inline void multiply_rows(
    const Operand<T> *input, int64_t stride, int64_t num_rows, const T *panel, int64_t depth, Finish finish
) {
    int64_t row = 0;
    while (row < num_rows) {
        const int64_t left = num_rows - row;
        const int height = (int)ceil_div(left, ceil_div(left, MAX_TILE_ROWS));
        Vec sums[MAX_TILE_ROWS][2];
        const Operand<T> *from = input + row * stride;
        switch (height) {
            case 1: multiply_panel<T, 1>(from, stride, panel, depth, sums); break;
            case 2: multiply_panel<T, 2>(from, stride, panel, depth, sums); break;
            case 3: multiply_panel<T, 3>(from, stride, panel, depth, sums); break;
            case 4: multiply_panel<T, 4>(from, stride, panel, depth, sums); break;
            case 5: multiply_panel<T, 5>(from, stride, panel, depth, sums); break;
            case 6: multiply_panel<T, 6>(from, stride, panel, depth, sums); break;
#if defined(__AVX512BF16__)
            case 7: multiply_panel<T, 7>(from, stride, panel, depth, sums); break;
            case 8: multiply_panel<T, 8>(from, stride, panel, depth, sums); break;
            case 9: multiply_panel<T, 9>(from, stride, panel, depth, sums); break;
            case 10: multiply_panel<T, 10>(from, stride, panel, depth, sums); break;
            case 11: multiply_panel<T, 11>(from, stride, panel, depth, sums); break;
            case 12: multiply_panel<T, 12>(from, stride, panel, depth, sums); break;
#endif
        }
        for (int tile_row = 0; tile_row < height; tile_row++) finish(row + tile_row, sums[tile_row]);
        row += height;
    }
}

}  // namespace ISA
