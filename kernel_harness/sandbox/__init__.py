"""The judge's side of worker processes: starts them, sends them requests, enforces their limits and kills them."""
