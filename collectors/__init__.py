"""Finds engines and devices on this host and samples them. Knows nothing of Streamlit or SQL."""
