"""Views: specifications (policies), sampled parameters (recipes) and the pixels they give (render)."""
