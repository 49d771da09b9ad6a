"""What CPUs and memory have to do with what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.look.why.phrases import Sentence


HOST_PARTS: Mapping[str, Sentence] = {
    "with_host": (
        "[ With {cpus:CPUs} for each GPU and {memory_shares:.3g} times its GPUs' part of the memory it is "
        "{host_speed:.3g} times as fast as its profile says.]"
    ),
    "needs": "{gpus_needed:GPU}[ with {cpus_needed:CPUs} and {memory_part:%} of all memory]",
    "share": "the dominant share is now {dominant_share:%}",
}
OF_HOSTS: Mapping[str, Sentence] = {
    "least-share": "It has {needs}, as no other queue had less of what it uses most; {share}.",
    "share-waits": "It needs {needs}, and those before it left too little on the nodes; {share}.",
}
