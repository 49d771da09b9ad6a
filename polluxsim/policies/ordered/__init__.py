"""Policies that give gangs their GPUs in an order."""
