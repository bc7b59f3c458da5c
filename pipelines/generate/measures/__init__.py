"""What generated views are worth, in numbers, level by level: of any generator."""
