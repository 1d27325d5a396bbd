"""Pure array formulas: arrays in, arrays out, in the array API standard (NumPy, CuPy, array_api_strict)."""
