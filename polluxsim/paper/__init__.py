"""Every table and figure of the paper by one command each.

An experiment is two files in `experiments/experiment/`: NAME.yaml, a difference from the default configuration whose
`reproduce` section says what is run, measured and drawn, and NAME.csv with the published values and the rule for each.
What is measured and drawn are functions by name (`measures`, `drawings`). Nothing else needs to be registered.
"""
