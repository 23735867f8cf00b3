"""What the host and its GPUs tell: one module a vendor, all behind `collectors.devices.base`."""
