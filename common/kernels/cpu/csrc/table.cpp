#include "entry_points.h"
#include "panels.h"

namespace ISA {

extern const Kernels KERNELS = {
    PANEL_COLUMNS,
    linear_entry,
    attention_entry,
    step_entry,
    linear_scratch_bytes,
    attention_scratch_bytes,
    step_scratch_bytes,
    draw_entry,
    draw_scratch_bytes,
    read_memory,
    multiply_registers,
    {
        2 * MAX_TILE_ROWS * PANEL_COLUMNS * PanelStep<float>::DEPTH,
        2 * MAX_TILE_ROWS * PANEL_COLUMNS * PanelStep<bf16>::DEPTH,
    },
};

}  // namespace ISA
