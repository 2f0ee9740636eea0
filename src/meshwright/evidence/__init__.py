"""Predictions against measurements: published runs, errors, rankings, and the fit."""
