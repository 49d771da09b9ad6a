"""Policies that choose GPU types: shares of time by type, and types for whole gangs."""
