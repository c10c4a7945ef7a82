"""gen-seed: a node spec in, the node's cloud-init seed out."""

__version__ = "0.1.0"
