"""The dialect of SGLang."""
