"""Why a job got what it got, in words: what happened by the allocations, and what decided by the policy's reasons."""
