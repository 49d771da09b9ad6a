"""From measured tables to a profile card."""

from polluxsim.applications.card_fitting.fit import fit_card, placement_errors
from polluxsim.applications.card_fitting.size import CardSize

__all__ = ["CardSize", "fit_card", "placement_errors"]
