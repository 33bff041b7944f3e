"""The engines that copy objects, and the choice between them."""
