"""What MLflow is told: a study as a parent run, its trials as children, its winner as a version of a registered model.

The driver holds a `Tracker` (mlflow_tracker.py), whose methods append to a durable queue (spool.py); one thread tells MLflow
(delivery.py, registry.py). The only room that imports mlflow, and only inside functions: nothing here costs its import
until something is delivered.
"""
