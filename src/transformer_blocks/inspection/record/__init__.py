"""Recording: watch a model: its attention weights, projections, shapes and values; ablate parts."""
