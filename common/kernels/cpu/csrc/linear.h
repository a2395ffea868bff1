// Linear layers over panels. Columns are split among the threads, so that no sum depends on how many there are.
#pragma once

#include "abi.h"
#include "panels.h"
#include "team.h"

namespace ISA {

// Rows that go together through all panels of a thread: their inputs stay in the second-level cache.
constexpr int64_t ROW_BLOCK = 192;

// Calls finish(row, panel's first column, sums) for each row and panel of this thread.
template <typename T, typename Finish>
static inline void multiply(
    const Team &team, const Operand<T> *input, int64_t stride, int64_t num_rows, const Matrix &weight,
    int64_t columns_per_panel, Finish finish
) {
    const int64_t depth = round_up(weight.depth, DEPTH_UNIT);
    const int64_t num_panels = ceil_div(weight.num_outputs, columns_per_panel);
    for (int64_t first = 0; first < num_rows; first += ROW_BLOCK)
        for (int64_t panel = team.first_of(num_panels); panel < team.end_of(num_panels); panel++) {
            const T *from = (const T *)weight.panels + panel * depth * PANEL_COLUMNS;
            const float *bias = weight.bias ? weight.bias + panel * PANEL_COLUMNS : nullptr;
            const int64_t count = smaller(ROW_BLOCK, num_rows - first);
            multiply_rows<T>(input + first * stride, stride, count, from, depth, [&](int64_t row, Vec *sums) {
                if (bias)
                    for (int side = 0; side < 2; side++) sums[side] = add(sums[side], load(bias + side * LANES));
                finish(first + row, panel * columns_per_panel, sums);
            });
        }
}

template <typename Out> static inline void store_columns(Out *to, Vec v, int64_t count) {
    if (count >= LANES) store(to, v);
    else if (count > 0) store_first(to, v, (int)count);
}

// output = input * weight + bias
template <typename T, typename Out>
static inline void linear(
    const Team &team, const Operand<T> *input, int64_t stride, int64_t num_rows, const Matrix &weight, Out *output,
    int64_t output_stride
) {
    multiply<T>(team, input, stride, num_rows, weight, PANEL_COLUMNS, [&](int64_t row, int64_t column, Vec *sums) {
        Out *to = output + row * output_stride + column;
        store_columns(to, sums[0], weight.num_outputs - column);
        store_columns(to + LANES, sums[1], weight.num_outputs - column - LANES);
    });
}

// output += input * weight + bias: the residual stream
template <typename T>
static inline void linear_add(
    const Team &team, const Operand<T> *input, int64_t stride, int64_t num_rows, const Matrix &weight, float *output,
    int64_t output_stride
) {
    multiply<T>(team, input, stride, num_rows, weight, PANEL_COLUMNS, [&](int64_t row, int64_t column, Vec *sums) {
        for (int side = 0; side < 2; side++, column += LANES) {
            float *to = output + row * output_stride + column;
            const int64_t count = weight.num_outputs - column;
            if (count >= LANES) store(to, add(load(to), sums[side]));
            else if (count > 0) store_first(to, add(load_first(to, (int)count), sums[side]), (int)count);
        }
    });
}

// output = silu(gate) * up, with a panel's left half gate and its right half up
template <typename T, typename Out>
static inline void linear_silu(
    const Team &team, const Operand<T> *input, int64_t stride, int64_t num_rows, const Matrix &weight, Out *output,
    int64_t output_stride
) {
    multiply<T>(team, input, stride, num_rows, weight, LANES, [&](int64_t row, int64_t column, Vec *sums) {
        const Vec gate = sums[0];
        const Vec activated = div(gate, add(splat(1.0f), exp(sub(splat(0.0f), gate))));
        store_columns(output + row * output_stride + column, mul(activated, sums[1]), weight.num_outputs - column);
    });
}

}  // namespace ISA
