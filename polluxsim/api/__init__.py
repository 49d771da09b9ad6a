"""The Python API: simulate, compare and keep runs from a script or a notebook. `polluxsim` itself offers its names."""
