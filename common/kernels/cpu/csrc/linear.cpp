#include "linear.h"

#include "kernels.h"
#include "entry_points.h"

namespace ISA {

template <typename T> static void run(const Team &team, const LinearCall &call) {
    const int64_t depth = round_up(call.weight.depth, DEPTH_UNIT);
    Operand<T> *input = (Operand<T> *)call.scratch;
    for (int64_t row = team.first_of(call.num_rows); row < team.end_of(call.num_rows); row++)
        convert_row((const T *)call.input + row * call.input_stride, call.weight.depth, depth, input + row * depth);
    team.wait();
    if (call.silu_gate)
        linear_silu<T>(team, input, depth, call.num_rows, call.weight, (T *)call.output, call.output_stride);
    else if (call.float_output)
        linear<T>(team, input, depth, call.num_rows, call.weight, (float *)call.output, call.output_stride);
    else linear<T>(team, input, depth, call.num_rows, call.weight, (T *)call.output, call.output_stride);
}

void linear_entry(const Team &team, DType dtype, const LinearCall &call) {
    if (dtype == DTYPE_BFLOAT16) run<bf16>(team, call);
    else run<float>(team, call);
}

int64_t linear_scratch_bytes(DType dtype, int64_t num_rows, int64_t depth) {
    const int64_t item = dtype == DTYPE_BFLOAT16 ? sizeof(Operand<bf16>) : sizeof(float);
    return num_rows * round_up(depth, DEPTH_UNIT) * item + 64;
}

}  // namespace ISA
