// Stands for the header that the tests reuse (tests/CMakeLists.txt).
