"""Ranking: raw features of one user and many candidates in, scored and ordered candidates out."""
