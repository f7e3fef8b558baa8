"""What /metrics shows of the proxy, the controller and the device plugin."""
