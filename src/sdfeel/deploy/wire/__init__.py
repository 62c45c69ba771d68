"""Messages, how they travel, and the transport that carries them."""
