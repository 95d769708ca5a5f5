"""Where attempts run. An executor is a plug-in of the group `stannel.executors`."""
