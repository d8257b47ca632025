package main

func genAttention(f *file) {}
