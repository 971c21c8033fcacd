"""Why a step is slow, from an Ascend profile."""
