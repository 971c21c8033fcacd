"""Run the real MindSpore on its Ascend back end in simulation, in child processes, and judge the memory that it needed."""
