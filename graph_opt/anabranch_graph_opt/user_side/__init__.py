"""What depends on the user alone: computed once per user, and given to the user's candidates."""
