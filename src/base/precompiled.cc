// Stands for the header that the others reuse (src/CMakeLists.txt).
