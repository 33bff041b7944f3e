"""What makes the configs of each consumer.

`base` says what a consumer has to have, and `registry` names them all; each is a module or a
package of its own.
"""
