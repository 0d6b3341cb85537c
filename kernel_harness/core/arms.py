"""The names of the baselines and of the control. A candidate that serves as the baseline keeps its own name."""

BASELINE, CONTROL = "torch", "(control)"

# The mode of torch.compile, by the name of the compiled baseline.
COMPILED = {"torch.compile": "default", "torch.compile:max-autotune": "max-autotune"}
BASELINES = (BASELINE, *COMPILED)

# No kernel may have one of these names: it would be shown with the times of the arm of that name.
RESERVED = (*BASELINES, CONTROL)
