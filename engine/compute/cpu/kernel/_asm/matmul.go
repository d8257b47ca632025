package main

func genMatMul(f *file) {}
