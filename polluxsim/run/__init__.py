"""One run, from a configuration to its folder: composed, built, recognised by its key, executed, kept safe."""
