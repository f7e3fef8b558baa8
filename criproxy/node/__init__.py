"""The node's controller: held and watched calls in, decisions of the engine carried out in the runtime."""
