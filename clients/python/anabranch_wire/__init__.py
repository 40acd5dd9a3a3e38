"""Protocol messages, errors and file structures shared by anabranch servers and clients."""
