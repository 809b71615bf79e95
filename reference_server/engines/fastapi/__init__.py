"""What engines written with FastAPI share: validation, routing, events, the OpenAI input."""
