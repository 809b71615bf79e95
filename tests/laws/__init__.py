"""What holds for every input, tried with made-up ones."""
