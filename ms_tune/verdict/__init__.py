"""Does it fit? One judge for all commands: what a rank needs, what a device gives, what is set aside. Pure arithmetic."""
