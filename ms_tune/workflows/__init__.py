"""What puts engines together."""
