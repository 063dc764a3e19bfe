"""What is laid out before a kernel computes: who takes which samples in each step (`batches`), and all that steps read in one wave
(`waves`), on the device (`transfer`).
"""
