"""Stages `quality_component` and `quality`: GenView's quality of every stored pair."""
