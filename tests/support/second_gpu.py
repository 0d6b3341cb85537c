"""An emulated device that stands for the second GPU of a machine: workers must see it alone, under another name."""

from pathlib import Path

from kernel_harness.device.cpu import Emulated

OTHER_GPU = Path("/dev/full")  # stands for the device file of the first GPU: a harmless file that workers else can use


class SecondGpu(Emulated):
    """Workers open it by another name than the judge, as they do with a GPU."""

    name = f"{__name__}:SecondGpu"

    @property
    def name_in_workers(self) -> str:
        """The name of the plain emulated device."""
        return "cpu"

    def worker_variables(self) -> dict[str, str]:
        """The variable that shows a GPU alone."""
        return {"CUDA_VISIBLE_DEVICES": "GPU-second"}

    def hidden_from_workers(self) -> list[Path]:
        """The device file of the other GPU."""
        return [OTHER_GPU]
