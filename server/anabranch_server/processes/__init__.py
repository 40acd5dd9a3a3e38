"""What the processes of a server share: how they are started, what they say, what they all see."""
