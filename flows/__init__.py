"""Prefect reads its settings when it is imported: they are set before any module of this package is."""

from flows import prefect_settings

prefect_settings.apply()
