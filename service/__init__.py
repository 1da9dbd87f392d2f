"""The HTTP service: answers texts from a bundle, each at the exit where the model is sure.

Start it with `service.main.serve(settings)`, or mount `service.app.create_app(settings)` in a
server of your own. Nothing is imported here: `service.metric_names` must stay cheap to import.
"""
