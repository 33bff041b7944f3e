"""What tests of Larder, and of programs that use it, are made with."""
