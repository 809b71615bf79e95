"""The dialect of vLLM."""
