"""Every table and figure of the paper by one command each.

An experiment is two files in `experiments/experiment/`: NAME.yaml, a difference from the default configuration whose
`reproduce` section names the runs and a module, and NAME.csv with the published values. The module answers two calls
(`experiment.Module`): `measure` gives samples of what the CSV's rows name, and `draw` gives figures. Nothing else needs
to be registered.
"""
