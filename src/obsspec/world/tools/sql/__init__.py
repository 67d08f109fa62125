"""What a database answers, from what it showed: names, errors and the answers of equal queries."""
