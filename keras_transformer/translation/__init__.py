"""Text to text: one pipeline in the graph, and its doors."""
