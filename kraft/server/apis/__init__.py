"""The controller's APIs: one module a group of requests, each from its body to the response's."""
