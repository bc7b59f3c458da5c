"""Views: what is drawn (recipes), by which laws (policies), and the pixels it gives (render)."""
