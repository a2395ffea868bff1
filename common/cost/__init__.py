"""What a step costs, in seconds: measured by workers, used by routers to plan and by the simulator to replay.

Plain arithmetic: no torch, no numpy, no wire types.
"""

from common.cost.map_time import map_in_s
from common.cost.step_time_fit import StepTimeFit
from common.cost.step_times import UNMEASURED, DecodeWork, PrefillWork, StepTimes

__all__ = ["UNMEASURED", "DecodeWork", "PrefillWork", "StepTimeFit", "StepTimes", "map_in_s"]
