"""Deployment: the algorithms of a simulation on real devices, through Flower."""
