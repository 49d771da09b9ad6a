"""Tools that policies share: gangs, free GPUs, numbers of GPUs, pools of one GPU type, and the ledger of service."""
