"""From measured tables to a profile card."""

from polluxsim.models.card_fitting.fit import fit_card, placement_errors
from polluxsim.models.card_fitting.size import CardSize

__all__ = ["CardSize", "fit_card", "placement_errors"]
