// Only what is precompiled for it (StpLibrary.cmake).
