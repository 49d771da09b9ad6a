"""Policies that give whole gangs their GPUs in an order."""
