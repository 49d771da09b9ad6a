"""Policies that share a cluster between users and queues."""
