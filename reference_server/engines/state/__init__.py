"""What an engine is beneath its HTTP: run state, weights, generations, clock."""
